"""The simulator as Triton's active driver: ``kernel[grid](cpu_tensors)`` runs the kernel's own PTX.

Triton hands a driver no PTX, so ``CompiledKernel._init_handles`` is wrapped to note it. Each simulated target is a
device number of its own, because Triton keys compiled kernels by device number: several targets can be used in one
process. Time, for events and for autotuning, is simulated cycles at 1 GHz: instructions a warp, spread over the
device's multiprocessors; it ranks configurations by work, not by what a GPU would take.
Imports Triton, so it is itself imported only after Triton.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import triton

from kcontract.dynamic.engines import devices
from kcontract.dynamic.engines.driver import CpuTensorDriver
from kcontract.dynamic.engines.simulator import kernel as decoded
from kcontract.dynamic.engines.simulator import memory, tensor_map
from kcontract.dynamic.engines.simulator.engine import block_of, lay_out
from kcontract.dynamic.engines.simulator.launch import Grid
from kcontract.dynamic.engines.simulator.options import Options
from kcontract.errors import InputError, KContractError

#: Instructions a cycle of one multiprocessor: four schedulers, one warp instruction each.
_ISSUE = 4
_FORMATS = {"fp32": "<f", "f32": "<f", "fp64": "<d", "fp16": "<e"}


class SimulatedDriver(CpuTensorDriver):
    """Launches run in the simulator. ``last`` is the grid of the latest launch, ``output`` what devices printed."""

    def __init__(self, device: devices.Device, options: Options | None = None) -> None:
        super().__init__(device)
        self.options = options or Options()
        self.cycles = 0.0
        self.last: Grid | None = None
        self.output: list[str] = []
        self.ptx: dict[str, str] = {}
        self.kernels: dict[str, decoded.Kernel] = {}
        self.interface = Interface(self)
        self.observers: list[Callable[[str, Grid], None]] = []

    def launch(self, source: Any, metadata: Any, grid: tuple[int, int, int], arguments: Mapping[str, Any]) -> None:
        """Run it. What it raises on purpose shows the caller's frames alone, unless Triton's own switch for full
        tracebacks (``TRITON_FRONT_END_DEBUGGING``) is on."""
        try:
            self._launch(source, metadata, grid, arguments)
        except KContractError as error:
            if triton.knobs.compilation.front_end_debugging:
                raise
            raise error.with_traceback(None) from None

    def _launch(self, source: Any, metadata: Any, grid: tuple[int, int, int], arguments: Mapping[str, Any]) -> None:
        if 0 in grid:
            return
        ptx = self.ptx.get(metadata.hash)
        if ptx is None:
            raise InputError(f"{metadata.name}: Triton kept no PTX; unset TRITON_STORE_BINARY_ONLY to simulate it")
        kernel = self.kernels.get(metadata.hash)
        if kernel is None:
            kernel = self.kernels[metadata.hash] = decoded.decode(ptx)
        admitted = memory.Global()
        values = list(_flatten(source, metadata, arguments, admitted))
        ctas = getattr(metadata, "num_ctas", 1) or 1
        extent = (grid[0] * ctas, grid[1], grid[2])
        threads = kernel.function.directives.get("reqntid") or (metadata.num_warps * 32,)
        for name in ("global_scratch", "profile_scratch"):
            size = (getattr(metadata, f"{name}_size", 0) or 0) * extent[0] * extent[1] * extent[2]
            address = admitted.allocate(name, np.zeros(size + 256, "u1")) if size else 0
            values.append(struct.pack("<Q", -(-address // 128) * 128))
        run = Grid(
            kernel,
            extent,
            block_of(threads),
            (ctas, 1, 1),
            metadata.shared,
            admitted,
            pack(kernel, values),
            self.options,
        )
        self.last = run
        try:
            run.run()
        finally:
            self.output += run.output
        self.cycles += cost(run, self.device.multiprocessors)
        for observe in self.observers:
            observe(metadata.name, run)
        self.report(run)

    def report(self, run: Grid) -> None:
        """Raise what a launch that ran to its end has reported, if anything."""
        for fault in run.reported:
            raise fault

    def get_current_device(self) -> int:
        """The capability, so that Triton keeps kernels of several simulated targets apart."""
        return self.device.target.capability or 0

    def get_active_torch_device(self) -> Any:
        """Tensors stay on the CPU."""
        import torch

        return torch.device("cpu")

    def get_device_interface(self) -> Any:
        """Events in simulated time."""
        return self.interface

    def get_benchmarker(self) -> Callable[..., list[float]]:
        """Simulated milliseconds of one call, for each quantile asked for."""

        def once(
            call: Callable[[], object], quantiles: Sequence[float] = (0.5, 0.2, 0.8), **options: Any
        ) -> list[float]:
            before = self.cycles
            call()
            return [(self.cycles - before) / 1e6] * len(quantiles)

        return once


class Interface:
    """What Triton's ``do_bench`` asks of ``torch.cuda``."""

    def __init__(self, driver: SimulatedDriver) -> None:
        class Event:
            """A point in simulated time."""

            def __init__(self, enable_timing: bool = False) -> None:
                self.at = 0.0

            def record(self, stream: object = None) -> None:
                self.at = driver.cycles

            def elapsed_time(self, end: Event) -> float:
                """Simulated milliseconds to ``end``."""
                return (end.at - self.at) / 1e6

            def synchronize(self) -> None:
                """Launches are done when they return."""

        self.Event = Event
        self.driver = driver

    def synchronize(self, device: object = None) -> None:
        """Launches are done when they return."""

    def current_device(self) -> int:
        return self.driver.get_current_device()

    def set_device(self, device: object) -> None:
        """There is one."""

    def get_device_properties(self, device: object = None) -> dict[str, int]:
        return self.driver.utils.get_device_properties()


def cost(run: Grid, multiprocessors: int) -> float:
    """Simulated cycles of a launch."""
    instructions = sum(int(v) * (b - a) for v, (a, b) in zip(run.visits, run.kernel.first, strict=True))
    total = run.extent[0] * run.extent[1] * run.extent[2]
    waves = -(-total // multiprocessors) / total * min(total, multiprocessors)
    return 1000 + instructions / 32 / _ISSUE / min(total, multiprocessors) * waves


def pack(kernel: decoded.Kernel, values: Sequence[bytes]) -> bytearray:
    """Parameter space with each value at its parameter's offset."""
    parameters = kernel.function.parameters
    if len(values) != len(parameters):
        raise InputError(f"{kernel.function.name} has {len(parameters)} parameters, the launch gives {len(values)}")
    return lay_out(parameters, values)


def _flatten(source: Any, metadata: Any, arguments: Mapping[str, Any], admitted: memory.Global) -> Iterator[bytes]:
    """Bytes of each kernel parameter that comes from an argument, in order."""
    descriptors = list(getattr(metadata, "tensordesc_meta", None) or [])

    def visit(kind: Any, value: Any, name: str) -> Iterator[bytes]:
        if isinstance(kind, tuple):
            for k, (inner, item) in enumerate(zip(kind, value, strict=True)):
                yield from visit(inner, item, f"{name}[{k}]")
        elif isinstance(kind, str) and kind == "constexpr":
            return
        elif isinstance(kind, str) and kind.startswith("tensordesc"):
            yield from _descriptor(value, descriptors.pop(0) if descriptors else None, name, admitted)
        else:
            yield _scalar(kind, value, name, admitted)

    for name, kind in source.signature.items():
        yield from visit(kind, arguments[name], name)


def _scalar(kind: str, value: Any, name: str, admitted: memory.Global) -> bytes:
    if kind.startswith("*"):
        if value is None:
            return bytes(8)
        if hasattr(value, "data_ptr"):
            _admit(value, name, admitted)
            return struct.pack("<Q", value.data_ptr())
        return struct.pack("<q" if value < 0 else "<Q", value)
    if kind == "bf16":
        return struct.pack("<f", float(value))[2:]
    if kind in _FORMATS:
        return struct.pack(_FORMATS[kind], float(value))
    width = max(int(kind.lstrip("iu")) // 8, 1)
    return (int(value) % (1 << (8 * width))).to_bytes(width, "little")


def _admit(tensor: Any, name: str, admitted: memory.Global) -> None:
    """A tensor's whole storage may be touched (views of one storage are one buffer)."""
    base = getattr(tensor, "base", tensor)
    base = base if hasattr(base, "untyped_storage") else tensor
    storage = base.untyped_storage()
    admitted.add(name, storage.data_ptr(), storage.nbytes())


def _descriptor(value: Any, meta: Any, name: str, admitted: memory.Global) -> Iterator[bytes]:
    """A host tensor descriptor: map or base, then shape and strides, as Triton's launcher expands it."""
    _admit(value.base, name, admitted)
    shape, strides = [int(x) for x in value.shape], [int(x) for x in value.strides]
    nan = getattr(value, "padding", "zero") == "nan"
    if meta is None:
        yield struct.pack("<Q", value.base.data_ptr())
        yield from (struct.pack("<q", x) for x in (*shape, *strides))
        yield bytes([nan])
        if getattr(value, "round_f32_to_tf32", None) is not None:
            yield bytes([bool(value.round_f32_to_tf32)])
    else:
        if meta.get("is_im2col"):
            raise InputError(f"{name}: im2col tensor maps are not simulated; use a tiled descriptor")
        kind = 11 if getattr(value, "round_f32_to_tf32", False) else meta["elem_type"]
        outer = [*shape[:-1], shape[-1] * 2] if meta["fp4_padded"] else shape
        yield tensor_map.encode(
            value.base.data_ptr(), kind, outer[::-1], [s * meta["elem_size"] for s in strides[-2::-1]],
            list(meta["block_size"])[::-1], meta["swizzle"], nan,
        )  # fmt: skip
    yield from (struct.pack("<q", x) for x in shape)
    yield from (struct.pack("<q", x) for x in strides)


_noted: list[SimulatedDriver] = []


def note_kernels(driver: SimulatedDriver) -> None:
    """Have each compiled kernel's PTX noted by the driver when Triton loads the kernel."""
    from triton.compiler.compiler import CompiledKernel

    _noted.append(driver)
    if len(_noted) > 1:
        return
    original = CompiledKernel._init_handles

    def init_handles(self: Any) -> None:
        ptx = self.asm.get("ptx")
        if ptx is not None:
            for each in _noted:
                each.ptx[self.metadata.hash] = ptx
        original(self)

    CompiledKernel._init_handles = init_handles


_DRIVERS: dict[str, SimulatedDriver] = {}


def driver_for(target: str, options: Options | None = None) -> SimulatedDriver:
    """The driver of a target such as ``sm_90``; one a target, since Triton keeps kernels by device.

    Raises ``UsageError`` for an unknown target.
    """
    device = devices.device(target)
    found = _DRIVERS.get(device.target.name)
    if found is None:
        found = _DRIVERS[device.target.name] = SimulatedDriver(device)
        note_kernels(found)
    found.options = options or Options()
    return found


@contextlib.contextmanager
def simulate(target: str, options: Options | None = None) -> Iterator[SimulatedDriver]:
    """Within the context Triton launches run simulated for ``target``, on CPU tensors."""
    driver = driver_for(target, options)
    config = triton.runtime.driver
    before = config._active
    config.set_active(driver)
    driver.output.clear()
    try:
        yield driver
    finally:
        config._active = before
