"""Reads what the compiler left on disk, whatever state it is in.

Why: cache folders are shared with running compilers, and ``kcontract check`` is pointed at files of any origin. Each
function here answers with bytes, text or an ``InputError`` of one sentence; none follows a path to a device or a
pipe, none reads more than its limit. What the files mean is not known here.
"""

from __future__ import annotations

import json
import os
import stat

from kcontract.errors import InputError

MIB = 2**20
#: Largest files that are read, in bytes. The largest seen in 859 library kernels: TTGIR 256 kB, PTX 557 kB, cubin
#: about twice its PTX, metadata 4 kB.
LIMITS = {"ttgir": 16 * MIB, "ptx": 16 * MIB, "cubin": 16 * MIB, "json": MIB}
_MAX_DIGITS = 20


def read_bytes(path: str, limit: int) -> bytes:
    """The content of a regular file of at most ``limit`` bytes."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0))
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise InputError("is not a regular file", path=path)
            if status.st_size <= limit:
                content = file.read(limit + 1)
                if len(content) <= limit:
                    return content
            raise InputError(f"is larger than {limit} bytes, the most that is read of such a file", path=path)
    except FileNotFoundError as error:
        raise InputError("is gone; another process may have cleaned the cache", path=path) from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InputError(f"cannot be read: {reason.lower()}", path=path) from error


def text_of(content: bytes, path: str | None = None) -> str:
    """``content`` as text. Bytes that are no UTF-8 are replaced; an empty or a binary file raises ``InputError``."""
    if not content.strip():
        raise InputError("is empty", path=path)
    if b"\0" in content:
        raise InputError("is a binary file where text was expected", path=path)
    return content.decode("utf-8", "replace")


def _integer(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise ValueError(f"a number of {len(digits)} digits")
    return int(digits)


def object_of(content: bytes, path: str | None = None) -> dict[str, object]:
    """The JSON object in ``content``. Anything else, or numbers or nesting beyond reason, raises ``InputError``."""
    try:
        value = json.loads(text_of(content, path), parse_int=_integer)
    except RecursionError as error:
        raise InputError("is JSON nested too deeply to be metadata", path=path) from error
    except ValueError as error:
        raise InputError(f"is not the JSON that Triton writes: {str(error)[:120]}", path=path) from error
    if not isinstance(value, dict):
        raise InputError("is JSON but no object, so it is not Triton's metadata", path=path)
    return value
