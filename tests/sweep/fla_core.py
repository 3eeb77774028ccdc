"""Sweep program: the public operations and modules of fla-core, forward and backward."""

from __future__ import annotations

import importlib
import pkgutil
import sys

from cases import run
from fla import modules, ops
from fla_cases import CASES, FORWARD_ONLY

#: Not operations: references in plain PyTorch, index preparation, context-parallel plumbing, helpers.
_NOT_AN_OPERATION = ("naive_", "prepare_", "get_", "all_", "send_", "conv_cp_", "build_cp_", "FLACP", "TritonAscend")


def public() -> set[str]:
    """What ``fla.ops``, its packages and ``fla.modules`` export and is an operation."""
    names = set(ops.__all__)
    for entry in pkgutil.iter_modules(ops.__path__):
        try:
            names |= set(getattr(importlib.import_module(f"fla.ops.{entry.name}"), "__all__", ()))
        except ImportError:  # fla.ops.deltaformer wants the package fla.layers
            names |= {"deltaformer_attn"}
    names |= {
        name
        for name, value in vars(modules).items()
        if isinstance(value, type) and value.__module__.startswith("fla.") and not name.startswith("_")
    }
    return {name for name in names if not name.startswith(_NOT_AN_OPERATION) and not name.endswith("_ref")}


if __name__ == "__main__":
    run(CASES, sys.argv[2:], sys.argv[1], public(), FORWARD_ONLY)
