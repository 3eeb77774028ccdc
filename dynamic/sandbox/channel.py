"""What grader and worker say to each other: short JSON frames over a socket, tensors as raw bytes through two files.

No pickle, in either direction. A header is checked before a byte of its tensor is used: known dtype, sane shape and
strides, and a place inside the file. Both files are in memory and belong to the grader; the worker holds the one with
the inputs read-only. Files are read with ``pread``, never mapped, since a mapped file that the other side cuts short
kills its reader. Standard library only at import; torch is passed in.
"""

from __future__ import annotations

import json
import math
import os
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kcontract.errors import KContractError

#: Bytes of the longest frame.
LONGEST = 1 << 22
DTYPES = (
    *("bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2", "complex64", "complex128"),
)
_MOST_DIMS = 16
#: Bytes from which pinned memory is worth having: its first allocation is slow, all copies through it are not.
PINNED = 1 << 22


class Garbled(KContractError):
    """The other side said something that is no frame, or no tensor."""


class Closed(KContractError):
    """The other side has gone."""


def send(channel: socket.socket, message: Mapping[str, Any], seconds: float | None = None) -> None:
    """Send one frame. Raises ``Closed`` where nobody listens, ``TimeoutError`` past ``seconds``."""
    data = json.dumps(message).encode()
    channel.settimeout(seconds)
    try:
        channel.sendall(struct.pack(">I", len(data)) + data)
    except TimeoutError:
        raise
    except OSError:
        raise Closed("the other side has closed the channel") from None


def receive(channel: socket.socket, seconds: float | None = None) -> dict[str, Any]:
    """The next frame, whole within ``seconds``. Raises ``Closed`` at the end, ``Garbled`` for what is none,
    ``TimeoutError`` past the limit."""
    until = None if seconds is None else time.monotonic() + seconds
    (size,) = struct.unpack(">I", _exactly(channel, 4, until))
    if size > LONGEST:
        raise Garbled(f"a frame of {size} bytes; at most {LONGEST} are taken")
    try:
        message = json.loads(_exactly(channel, size, until))
    except (ValueError, RecursionError):
        raise Garbled("a frame that is not JSON") from None
    if not isinstance(message, dict):
        raise Garbled("a frame that is no object")
    return message


def _exactly(channel: socket.socket, count: int, until: float | None) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        left = None if until is None else until - time.monotonic()
        if left is not None and left <= 0:
            raise TimeoutError
        channel.settimeout(left)
        try:
            part = channel.recv(min(count - len(parts), 1 << 20))
        except TimeoutError:
            raise
        except OSError:
            part = b""
        if not part:
            raise Closed("the other side has closed the channel")
        parts += part
    return bytes(parts)


@dataclass(slots=True)
class Arena:
    """One file of tensors, written from the front anew for each frame. ``room`` is the most bytes it may hold, and
    the most that are read for one frame."""

    handle: int
    room: int
    used: int = 0
    taken: int = 0

    def clear(self) -> None:
        """Forget what was written and read: a new frame."""
        self.used = self.taken = 0

    def write(self, data: Any) -> int | None:
        """Append bytes; their offset, or None where they don't fit."""
        view = memoryview(data).cast("B")
        if self.used + len(view) > self.room:
            return None
        offset, done = self.used, 0
        while done < len(view):
            done += os.pwrite(self.handle, view[done : done + (1 << 28)], offset + done)
        self.used += -(-len(view) // 64) * 64
        return offset

    def read(self, offset: int, into: memoryview) -> None:
        """Fill ``into`` from a place. Raises ``Garbled`` where the file does not hold that, or too much was read."""
        count = len(into)
        self.taken += count
        if self.taken > self.room:
            raise Garbled(f"tensors of more than {self.room} bytes in one frame")
        done = 0
        while done < count:
            got = os.preadv(self.handle, [into[done : done + (1 << 28)]], offset + done)
            if got <= 0:
                raise Garbled(f"{count} bytes at {offset} were announced, only {done} are there")
            done += got


def pack(torch: Any, value: Any, arena: Arena) -> dict[str, Any]:
    """A tensor's header after its storage has been written to the arena; layout is kept.

    ``at`` is null where the bytes don't fit. A tensor that is broadcast or sliced carries its whole storage only if
    that is at most four times as large as the tensor itself.
    """
    value = _on_host(torch, value.detach())
    extent = extent_of(value.shape, value.stride())
    if extent > 4 * max(value.numel(), 1) or value.is_conj() or value.is_neg():
        value = value.contiguous().resolve_conj().resolve_neg()
        extent = value.numel()
    flat = value.as_strided((extent,), (1,), value.storage_offset()) if extent else value.reshape(-1)
    data = flat.contiguous().view(torch.uint8).numpy() if extent else b""
    return {
        "dtype": str(value.dtype).removeprefix("torch."),
        "shape": list(value.shape),
        "stride": list(value.stride()),
        "at": arena.write(data),
    }


def _on_host(torch: Any, value: Any) -> Any:
    """A CPU copy of a tensor elsewhere; of a large dense one in pinned memory, which torch keeps for the next time."""
    if value.device.type != "cuda" or value.nbytes < PINNED or not value.is_contiguous():
        return value.cpu()
    return torch.empty(value.shape, dtype=value.dtype, pin_memory=True).copy_(value)


def extent_of(shape: Sequence[int], stride: Sequence[int]) -> int:
    """Elements from the first to the last one touched."""
    return 0 if 0 in shape else 1 + sum((s - 1) * t for s, t in zip(shape, stride, strict=True))


def unpack(torch: Any, header: Mapping[str, Any], arena: Arena, pinned: bool = False) -> Any:
    """The tensor of a header, on the CPU, in a fresh storage, a large one in ``pinned`` memory if so asked. Raises
    ``Garbled`` for a header that makes no sense."""
    shape, stride, at, name = (header.get(key) for key in ("shape", "stride", "at", "dtype"))
    if name not in DTYPES or not _sizes(shape) or not _sizes(stride) or len(shape) != len(stride):  # type: ignore
        raise Garbled("a header that describes no tensor")
    assert isinstance(shape, list) and isinstance(stride, list)
    dtype = getattr(torch, str(name))
    extent = extent_of(shape, stride)
    if extent == 0:
        return torch.empty(shape, dtype=dtype)
    if type(at) is not int or at < 0 or max(extent, math.prod(shape)) * dtype.itemsize > arena.room:
        raise Garbled("a tensor outside the file")
    count = extent * dtype.itemsize
    data = torch.empty(count, dtype=torch.uint8, pin_memory=pinned and count >= PINNED)
    arena.read(at, memoryview(data.numpy()))
    return data.view(dtype).as_strided(shape, stride)


def _sizes(value: Any) -> bool:
    return (
        isinstance(value, list) and len(value) <= _MOST_DIMS and all(type(s) is int and 0 <= s < 1 << 48 for s in value)
    )


def literal(value: Any) -> Any:
    """A plain value as JSON, tuples and non-finite numbers kept. Raises ``Garbled`` for anything else."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else {"float": str(value)}
    if isinstance(value, (list, tuple)):
        return {"tuple" if isinstance(value, tuple) else "list": [literal(v) for v in value]}
    if isinstance(value, dict):
        return {"dict": [[literal(k), literal(v)] for k, v in value.items()]}
    name = str(value)
    if name.startswith("torch.") and type(value).__module__ == "torch":
        return {"torch": name.removeprefix("torch.")}
    raise Garbled(f"a {type(value).__name__} cannot be passed to a candidate")


def plain(torch: Any, value: Any) -> Any:
    """The value that ``literal`` wrote."""
    if not isinstance(value, dict):
        return value
    ((kind, inner),) = value.items()
    if kind == "float":
        return float(inner)
    if kind in ("tuple", "list"):
        return (tuple if kind == "tuple" else list)(plain(torch, v) for v in inner)
    if kind == "dict":
        return {plain(torch, k): plain(torch, v) for k, v in inner}
    return torch.device(inner) if ":" in inner or inner in ("cpu", "cuda") else getattr(torch, inner)
