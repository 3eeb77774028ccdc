"""Torch on the CPU that answers like torch on one CUDA device, so that a program for a GPU allocates and goes on.

Every tensor is a CPU tensor and says it is on ``cuda:0``; ``device="cuda"``, ``.cuda()`` and ``.to("cuda")`` give CPU
tensors; streams and events do nothing, graphs are captured and replayed. Functions are replaced rather than intercepted
by a TorchFunctionMode: a mode is switched off inside its own handler and in new threads, and torch's own Python code
then meets ``cuda`` unprotected. Memory that torch leaves uninitialised is zero-filled, so that what the program does
next is the same in every run. Not covered: ``torch.compile`` and TorchScript (switched off by the environment, the
program runs eagerly), ``torch.ops.aten`` factories called with a device, several devices, NCCL. Imported only after
torch.
"""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

from kcontract.dynamic.engines import graphs
from kcontract.dynamic.engines.devices import Device

#: Whether memory that torch leaves uninitialised is zero-filled.
zero_fill = True

_CPU = torch.device("cpu")
_CUDA = torch.device("cuda", 0)

_UNINITIALISED = ("empty", "empty_strided", "empty_like", "empty_permuted")
_FACTORIES = (
    *("arange", "as_tensor", "asarray", "bartlett_window", "blackman_window", "eye", "from_file", "full", "full_like"),
    *("frombuffer", "hamming_window", "hann_window", "kaiser_window", "linspace", "logspace", "normal", "ones"),
    *("ones_like", "rand", "rand_like", "randint", "randint_like", "randn", "randn_like", "randperm", "range"),
    *("scalar_tensor", "sparse_coo_tensor", "sparse_csr_tensor", "tensor", "tril_indices", "triu_indices", "zeros"),
    "zeros_like",
)
_PRODUCTS = torch.library.Library("aten", "IMPL", "CPU")
_METHODS = ("new_full", "new_ones", "new_tensor", "new_zeros")
_UNINITIALISED_METHODS = ("new_empty", "new_empty_strided")


def install(device: Device) -> None:
    """Replace what stands between a GPU program and a torch without one. Once a process."""
    _replace_factories()
    _replace_tensor_methods()
    _add_products()
    _replace_autocast()
    _replace_cuda(device)


def _real(device: object) -> object:
    """The device to really use: the CPU for any CUDA device, also for one given as a number."""
    if isinstance(device, torch.device):
        return _CPU if device.type == "cuda" else device
    if isinstance(device, str):
        return "cpu" if device.partition(":")[0] == "cuda" else device
    return _CPU if isinstance(device, int) and not isinstance(device, bool) else device


def _on_cpu(function: Callable[..., Any], zero: bool = False) -> Callable[..., Any]:
    """``function`` with its ``device`` made real, and its result zero-filled where it would be uninitialised."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("device") is not None:
            kwargs["device"] = _real(kwargs["device"])
        if kwargs.get("pin_memory"):
            kwargs["pin_memory"] = False
        result = function(*args, **kwargs)
        if zero and zero_fill:
            with torch.no_grad():
                result.zero_()
        return result

    return call


def _replace_factories() -> None:
    for name in (*_FACTORIES, *_UNINITIALISED):
        setattr(torch, name, _on_cpu(getattr(torch, name), name in _UNINITIALISED))
    load = torch.load

    @functools.wraps(load)
    def load_on_cpu(*args: Any, **kwargs: Any) -> Any:
        kwargs["map_location"] = "cpu"
        return load(*args[:1], **kwargs)

    torch.load = load_on_cpu

    class Generator(torch._C.Generator):  # type: ignore[misc]
        def __new__(cls, device: object = "cpu") -> Generator:
            return super().__new__(cls, _real(device))  # type: ignore[no-any-return]

    torch.Generator = Generator


def _replace_tensor_methods() -> None:
    tensor: Any = torch.Tensor
    real_device = torch._C.TensorBase.device
    for name in (*_METHODS, *_UNINITIALISED_METHODS):
        setattr(tensor, name, _on_cpu(getattr(tensor, name), name in _UNINITIALISED_METHODS))

    def device(self: Any) -> torch.device:
        found = real_device.__get__(self)
        return _CUDA if found.type == "cpu" else found

    to = tensor.to

    @functools.wraps(to)
    def to_real(self: Any, *args: Any, **kwargs: Any) -> Any:
        if args:
            args = (_real(args[0]), *args[1:])
        if "device" in kwargs:
            kwargs["device"] = _real(kwargs["device"])
        return to(self, *args, **kwargs)

    tensor.device = property(device)
    tensor.is_cuda = property(lambda self: self.device.type == "cuda")
    tensor.is_cpu = property(lambda self: self.device.type == "cpu")
    tensor.get_device = lambda self: 0
    tensor.to = to_real
    tensor.cuda = lambda self, *args, **kwargs: self
    tensor.pin_memory = lambda self, *args, **kwargs: self
    tensor.is_pinned = lambda self, *args, **kwargs: False
    tensor.record_stream = lambda self, stream: None


def _add_products() -> None:
    """``out_dtype`` of matrix products, which torch implements on CUDA only: the sum is rounded to it, once."""

    def with_type(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            *factors, kind = args
            with torch.autocast("cpu", enabled=False):  # as on CUDA, where autocast passes these by
                return function(*(x.to(kind) for x in factors), **kwargs)

        return call

    for name in ("mm", "bmm", "addmm", "baddbmm"):
        packet = getattr(torch.ops.aten, name)
        for overload in {"dtype", "dtype_out"} & set(packet.overloads()):
            _PRODUCTS.impl(f"{name}.{overload}", with_type(getattr(torch, name)))


def _replace_autocast() -> None:
    """Autocast for ``cuda`` becomes autocast for the CPU, which the tensors are really on."""

    def on_cpu(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(device_type: str = "cuda", *args: Any) -> Any:
            return function("cpu" if device_type == "cuda" else device_type, *args)

        return call

    for name in ("is_autocast_enabled", "get_autocast_dtype", "set_autocast_enabled", "set_autocast_dtype"):
        setattr(torch, name, on_cpu(getattr(torch, name)))
    torch.get_autocast_gpu_dtype = torch.get_autocast_cpu_dtype
    start = torch.amp.autocast_mode.autocast.__init__

    @functools.wraps(start)
    def init(self: Any, device_type: str, *args: Any, **kwargs: Any) -> None:
        start(self, "cpu" if device_type == "cuda" else device_type, *args, **kwargs)

    torch.amp.autocast_mode.autocast.__init__ = init


class Stream:
    """A stream that nothing is queued on."""

    device, cuda_stream, stream_id, device_index, priority = _CUDA, 0, 0, 0, 0

    def __init__(self, *args: object, **kwargs: object) -> None:
        pass

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def query(self) -> bool:
        """All work is done."""
        return True

    def record_event(self, event: Event | None = None) -> Event:
        """An event that has happened."""
        return event or Event()

    def synchronize(self, *args: object) -> None:
        """Nothing to wait for."""

    wait_event = wait_stream = synchronize


class Event:
    """An event that has happened; any two are 25 ms apart, which keeps ``do_bench`` to a few calls."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        pass

    def query(self) -> bool:
        """It has happened."""
        return True

    def elapsed_time(self, other: Event) -> float:
        """Milliseconds."""
        return 25.0

    def record(self, *args: object) -> None:
        """Happens at once."""

    synchronize = wait = record


@contextlib.contextmanager
def _context(*args: object, **kwargs: object) -> Iterator[None]:
    yield


def _answer(value: object) -> Callable[..., Any]:
    return lambda *args, **kwargs: value


def _replace_cuda(device: Device) -> None:
    cuda: Any = torch.cuda
    target = device.target
    properties = types.SimpleNamespace(
        name=device.name,
        major=device.capability[0],
        minor=device.capability[1],
        total_memory=device.memory,
        multi_processor_count=device.multiprocessors,
        max_threads_per_multi_processor=target.threads_per_sm,
        max_threads_per_block=target.threads_per_block,
        regs_per_multiprocessor=target.registers_per_sm,
        shared_memory_per_block=target.shared_per_block_default,
        shared_memory_per_block_optin=target.shared_per_block,
        shared_memory_per_multiprocessor=target.shared_per_sm,
        warp_size=target.warp_size,
        is_integrated=False,
        is_multi_gpu_board=False,
    )
    stream = Stream()
    answers: dict[str, object] = {
        **dict.fromkeys(("is_available", "is_initialized", "is_bf16_supported", "is_tf32_supported"), True),
        **dict.fromkeys(("current_device", "_exchange_device", "_maybe_exchange_device", "memory_allocated"), 0),
        **dict.fromkeys(("max_memory_allocated", "memory_reserved", "max_memory_reserved", "initial_seed"), 0),
        **dict.fromkeys(("set_device", "synchronize", "empty_cache", "ipc_collect", "_lazy_init", "init"), None),
        **dict.fromkeys(("reset_peak_memory_stats", "manual_seed", "manual_seed_all", "seed", "seed_all"), None),
        **dict.fromkeys(("set_rng_state", "set_rng_state_all", "set_stream", "reset_max_memory_allocated"), None),
        **dict.fromkeys(("current_stream", "default_stream"), stream),
        "device_count": 1,
        "get_device_capability": device.capability,
        "get_device_name": device.name,
        "get_device_properties": properties,
        "get_arch_list": [target.name],
        "mem_get_info": (device.memory, device.memory),
        "memory_stats": {},
    }
    for name, value in answers.items():
        setattr(cuda, name, _answer(value))
    cuda.get_rng_state = lambda *args: torch.get_rng_state()
    cuda.get_rng_state_all = lambda: [torch.get_rng_state()]
    cuda.Stream = cuda.ExternalStream = Stream
    cuda.Event, cuda.stream = Event, _context
    cuda.CUDAGraph, cuda.graph, cuda.is_current_stream_capturing = graphs.CUDAGraph, graphs.capture, graphs.capturing
    for name in ("range_push", "range_pop", "mark"):
        setattr(cuda.nvtx, name, _answer(0))
    torch._C._cuda_getCurrentRawStream = _answer(0)
    torch.version.cuda = torch.version.cuda or "13.0"
    accelerator: Any = torch.accelerator
    for name, value in {"is_available": True, "current_accelerator": torch.device("cuda"), "device_count": 1}.items():
        setattr(accelerator, name, _answer(value))
    for name, value in {"current_device_index": 0, "synchronize": None, "current_stream": stream}.items():
        setattr(accelerator, name, _answer(value))
