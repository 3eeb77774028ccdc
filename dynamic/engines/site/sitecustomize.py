"""Found first on PYTHONPATH by every Python process that ``kcontract run`` starts; starts the engine there.

Any other ``sitecustomize`` that Python would have found is run as well, before the engine. The package is loaded from
its own folder, so that nothing else of the environment kcontract is installed in can reach the program.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import os
import sys


def _run_the_other_one() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    elsewhere = [entry for entry in sys.path if os.path.abspath(entry) != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", elsewhere)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


def _load_kcontract(folder: str) -> None:
    init = os.path.join(folder, "__init__.py")
    spec = importlib.util.spec_from_file_location("kcontract", init, submodule_search_locations=[folder])
    if spec is None or spec.loader is None:
        raise ImportError(f"no package at {folder}")
    sys.modules["kcontract"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)


_run_the_other_one()
if "TRITON_KCONTRACT_RUN" in os.environ:
    if "kcontract" not in sys.modules:
        _load_kcontract(json.loads(os.environ["TRITON_KCONTRACT_RUN"])["package"])
    from kcontract.dynamic.engines import activate

    activate.start()
