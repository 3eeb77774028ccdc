"""The engine ``sim``: runs the PTX that was compiled for a GPU, on the CPU.

``SimulatorEngine`` (``engine``) runs one artifact on arrays, ``simulate`` (``driver``) runs a program's Triton launches
on CPU tensors, ``install`` does so for a whole process that ``kcontract run --engine sim`` has started.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kcontract.dynamic.engines import records


def install(settings: records.Settings) -> None:
    """Make the simulator Triton's active driver in this process (see ``dynamic.engines.activate``)."""
    from kcontract.dynamic.engines.simulator.process import install as really

    really(settings)
