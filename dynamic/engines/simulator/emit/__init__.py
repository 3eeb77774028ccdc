"""Emitters: what each family of PTX instructions becomes in numpy. Importing this package registers them all."""

from __future__ import annotations

from kcontract.dynamic.engines.simulator.emit import (  # noqa: F401
    compare,
    control,
    convert,
    floating,
    integer,
    matrix,
    memory,
    warp,
)


def namespace() -> dict[str, object]:
    """Modules that generated code refers to, besides those of plain arithmetic."""
    from kcontract.dynamic.engines.simulator import matrix as matrices

    return {"matrix": matrices}
