"""Emitters: what each family of PTX instructions becomes in numpy. Importing this package registers them all."""

from __future__ import annotations

from kcontract.dynamic.engines.simulator.emit import (  # noqa: F401
    asynchronous,
    compare,
    control,
    convert,
    floating,
    integer,
    matrix,
    memory,
    tcgen05,
    warp,
    wgmma,
)


def namespace() -> dict[str, object]:
    """Modules that generated code refers to, besides those of plain arithmetic."""
    from kcontract.dynamic.engines.simulator import copies, tensors
    from kcontract.dynamic.engines.simulator import matrix as matrices
    from kcontract.dynamic.engines.simulator import tcgen05 as tensor_cores
    from kcontract.dynamic.engines.simulator import wgmma as warpgroups

    return {"matrix": matrices, "copies": copies, "tensors": tensors, "wgmma": warpgroups, "tcgen05": tensor_cores}
