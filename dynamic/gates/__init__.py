"""The dynamic gates, one file each: a file ``cmp_01.py`` holds ``check(bench) -> Found`` of the gate CMP-01."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable
from typing import Any


@functools.cache
def gates() -> dict[str, Callable[[Any], Any]]:
    """Gate ids with their ``check``, in the order they are run: REF-01 first, since it judges the judge; HON-01 last,
    since it reads what the others have seen."""
    found = {}
    for entry in pkgutil.iter_modules(__path__):
        stem, _, number = entry.name.partition("_")
        if number.isdecimal():
            found[f"{stem.upper()}-{number}"] = importlib.import_module(f"{__name__}.{entry.name}").check
    order = {"REF-01": 0, "CMP-01": 1, "HON-01": 9}
    return dict(sorted(found.items(), key=lambda item: (order.get(item[0], 5), item[0])))
