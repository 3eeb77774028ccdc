"""A Triton driver for programs on CPU tensors: it answers for one GPU kind and hands each launch to a method.

Why: Triton asks its active driver for the device, the stream and the target, and gives it each launch. With a driver
of our own an unmodified program on CPU tensors goes all the way through the compiler. What becomes of a launch is the
subclass's business. Worked on Triton 3.6.0 and 3.9.0; imports Triton, so it is itself imported only after Triton.
"""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from triton.backends.compiler import GPUTarget
from triton.backends.driver import GPUDriver

from kcontract.dynamic.engines import graphs
from kcontract.dynamic.engines.devices import Device
from kcontract.ir.artifact import Artifact


class CpuTensorDriver(GPUDriver):  # type: ignore[misc]
    """One device, number 0, of the kind ``device`` stands for. Subclasses say what a launch does."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.utils = _Utils(device)
        self.launcher_cls = self._launcher

    @abc.abstractmethod
    def launch(self, source: Any, metadata: Any, grid: tuple[int, int, int], arguments: Mapping[str, Any]) -> None:
        """One launch. ``arguments`` holds every argument by its name, compile-time constants too."""

    def _launcher(self, source: Any, metadata: Any) -> Callable[..., None]:
        def call(
            x: int, y: int, z: int, stream: int, function: object, packed: object, data: object, *rest: Any
        ) -> None:
            enter, leave, *values = rest
            if enter is not None:
                enter(data)
            arguments = dict(zip(source.fn.arg_names, values, strict=True))
            launch = functools.partial(self.launch, source, metadata, (int(x), int(y), int(z)), arguments)
            if not graphs.captures(launch):
                launch()
            if leave is not None:
                leave(data)

        return call

    @classmethod
    def is_active(cls) -> bool:
        """Never chosen by Triton itself, only installed."""
        return False

    def get_current_device(self) -> int:
        """Always 0."""
        return 0

    def set_current_device(self, device: int) -> None:
        """There is one device, so nothing changes."""

    def get_current_stream(self, device: int | None = None) -> int:
        """The default stream."""
        return 0

    def get_device_capability(self, device: int | None = None) -> tuple[int, int]:
        """Major and minor."""
        return self.device.capability

    def get_current_target(self) -> GPUTarget:
        """The target to compile for."""
        return GPUTarget("cuda", self.device.target.capability, self.device.target.warp_size)

    def get_active_torch_device(self) -> Any:
        """The device that tensors say they are on."""
        import torch

        return torch.device("cuda", 0)

    def get_device_interface(self) -> ModuleType:
        """``torch.cuda``, which the shim has made answer without a GPU."""
        import torch

        return torch.cuda  # type: ignore[no-any-return]

    def map_python_to_cpp_type(self, ty: str) -> str:
        """As the CUDA driver maps it."""
        from triton.backends.nvidia.driver import ty_to_cpp

        return ty_to_cpp(ty)  # type: ignore[no-any-return]

    def get_benchmarker(self) -> Callable[..., list[float]]:
        """Runs the call once and says it took 1 ms."""

        def once(call: Callable[[], object], **options: object) -> list[float]:
            call()
            return [1.0, 1.0, 1.0]

        return once

    def get_empty_cache_for_benchmark(self) -> Any:
        """A token buffer: there is no cache to flush."""
        import torch

        return torch.zeros(1, dtype=torch.int)

    def clear_cache(self, cache: Any) -> None:
        """There is no cache to flush."""


class _Utils:
    """What Triton and programs reach as ``driver.active.utils``. Clocks and bus width are an H100's for any device."""

    def __init__(self, device: Device) -> None:
        self.device = device

    def get_device_properties(self, device: int = 0) -> dict[str, int]:
        target = self.device.target
        return {
            "max_shared_mem": target.shared_per_block or 0,
            "max_num_regs": target.registers_per_block or 0,
            "multiprocessor_count": self.device.multiprocessors,
            "warpSize": target.warp_size,
            "sm_clock_rate": 1_755_000,
            "mem_clock_rate": 2_619_000,
            "mem_bus_width": 5120,
        }

    def load_binary(self, name: str, binary: bytes, shared: int, device: int) -> tuple[object, object, int, int, int]:
        """Module, function, registers and spilled bytes a thread, threads a block; nothing is loaded."""
        resources = Artifact(name, self.device.target, cubin=binary).resources
        threads = self.device.target.threads_per_block or 1024
        return object(), object(), resources.registers or 255, resources.spill_bytes or 0, threads

    def unload_module(self, module: object) -> None:
        """Nothing was loaded."""

    def set_printf_fifo_size(self, size: int) -> None:
        """Nothing prints."""

    def cuOccupancyMaxActiveClusters(self, *arguments: object) -> int:
        """One cluster a multiprocessor, whatever its size."""
        return self.device.multiprocessors
