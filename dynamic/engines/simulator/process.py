"""The simulator in a program that ``kcontract run`` has started: every launch really runs, and is recorded.

Compiles and loads are recorded as the engine ``compile`` records them. Of an autotuner's configurations the first
``max_configs`` are tried and the one of fewest simulated cycles is taken. ``TRITON_KCONTRACT_SIM=checked`` in the
environment (see ``options``) turns the diagnoses on: one that stops the simulator ends the program, others are printed
once a kernel.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import triton
from triton.runtime.autotuner import Autotuner

from kcontract.dynamic.engines import compile as compiler
from kcontract.dynamic.engines import devices, records
from kcontract.dynamic.engines.simulator import driver as drivers
from kcontract.dynamic.engines.simulator.launch import Grid
from kcontract.dynamic.engines.simulator.options import VARIABLE, Options, from_text


class _Driver(drivers.SimulatedDriver):
    """Tensors say they are on ``cuda:0`` (the device shim makes them), and launches are written down."""

    def __init__(self, device: devices.Device, options: Options, log: compiler._Log) -> None:
        super().__init__(device, options)
        self.log = log
        self.told: set[str] = set()

    def launch(self, source: Any, metadata: Any, grid: tuple[int, int, int], arguments: Mapping[str, Any]) -> None:
        integers = {
            name: value
            for name, value in arguments.items()
            if source.signature.get(name) != "constexpr" and type(value) is int
        }
        key = (metadata.hash, grid, tuple(integers.items()))
        self.log.once("launch", key, hash=metadata.hash, grid=grid, arguments=integers, candidate=False)
        try:
            super().launch(source, metadata, grid, arguments)
        finally:  # a program that faults has printed too
            print("".join(self.output), end="")
            self.output.clear()

    def report(self, run: Grid) -> None:
        """One line a kernel, and the program goes on."""
        for fault in run.reported:
            line = f"{run.kernel.function.name}: {fault}"
            if line not in self.told:
                self.told.add(line)
                print(line)

    def get_current_device(self) -> int:
        return 0

    def get_active_torch_device(self) -> Any:
        import torch

        return torch.device("cuda", 0)


def install(settings: records.Settings) -> None:
    """Make the simulator Triton's active driver. Once a process; children by fork keep it."""
    log = compiler._Log(settings)
    log.write("process", triton=triton.__version__, interpreted=bool(triton.knobs.runtime.interpret))
    options = from_text(os.environ.get(VARIABLE, ""))
    active = _Driver(devices.device(settings.target), options, log)
    drivers.note_kernels(active)
    triton.runtime.driver.set_active(active)
    triton.runtime.driver._default = active
    compiler._wrap_compile(log)
    compiler._wrap_load(log)
    prune = Autotuner.prune_configs

    def prune_configs(self: Any, kwargs: dict[str, Any]) -> list[Any]:
        offered = list(prune(self, kwargs))
        wanted = offered[: settings.max_configs]
        name = self.base_fn.__name__
        log.once("tuner", (name, len(offered)), kernel=name, offered=len(offered), compiled=len(wanted))
        return wanted

    Autotuner.prune_configs = prune_configs
