"""Takes away from a candidate's process what no kernel needs: the network, other processes, files of others.

Linux only, no privilege asked for. In layers, each of which may be missing on a host; ``apply`` says which ones hold:
``limits`` (file size, no core dumps), ``capabilities`` (root gives up its own), ``landlock`` (writes go to the given
folders only; no signal to, and no look into, a process outside; no TCP), ``seccomp`` (sockets other than socket pairs,
``connect``, tracing, foreign signals, namespaces and io_uring answer EPERM), and, where seccomp is missing, ``audit``
(Python's own sockets raise). It cannot be undone, and children inherit it. Memory and processes are ``keeper``'s.
Numbers are those of Linux's ``unistd.h``, ``landlock.h``, ``seccomp.h`` and ``filter.h``.
"""

from __future__ import annotations

import ctypes
import errno
import glob
import os
import platform
import resource
import struct
import sys
from collections.abc import Iterable, Sequence

_PR_SET_PDEATHSIG, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP = 1, 24, 38, 22
_CAP_DAC_READ_SEARCH, _CAPABILITIES = 2, 41
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/nvidia*")

#: Audit architecture, then numbers of the system calls named below.
_MACHINES = {
    "x86_64": (0xC000003E, {
        "socket": 41, "kill": 62, "tgkill": 234, "fcntl": 72, "clone": 56, "clone3": 435, "prlimit64": 302,
        "refused": (42, 101, 310, 311, 200, 129, 297, 424, 438, 434, 425, 165, 166, 155, 161, 272, 308, 321, 298, 248,
                    249, 250, 175, 313, 176, 246, 320, 169, 304, 312, 428, 429, 430, 442),
    }),
    "aarch64": (0xC00000B7, {
        "socket": 198, "kill": 129, "tgkill": 131, "fcntl": 25, "clone": 220, "clone3": 435, "prlimit64": 261,
        "refused": (203, 117, 270, 271, 130, 138, 240, 424, 438, 434, 425, 40, 39, 41, 51, 97, 268, 280, 241, 217,
                    218, 219, 105, 273, 106, 104, 294, 142, 265, 272, 428, 429, 430, 442),
    }),
}  # fmt: skip
# refused: connect, ptrace, process_vm_readv and _writev, tkill, rt_sigqueueinfo, rt_tgsigqueueinfo, pidfd_send_signal,
# pidfd_getfd, pidfd_open, io_uring_setup, mount, umount2, pivot_root, chroot, unshare, setns, bpf, perf_event_open,
# add_key, request_key, keyctl, init_module, finit_module, delete_module, kexec_load, kexec_file_load, reboot,
# open_by_handle_at, kcmp, open_tree, move_mount, fsopen, mount_setattr

_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent() -> None:
    """SIGKILL for this process when its parent ends."""
    _libc.prctl(_PR_SET_PDEATHSIG, 9, 0, 0, 0)


def apply(writable: Sequence[str], file_size: int) -> list[str]:
    """Confine this process for good. ``writable`` are folders, ``file_size`` is in bytes; names of what holds now."""
    held = ["limits"]
    resource.setrlimit(resource.RLIMIT_FSIZE, (file_size, file_size))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if os.geteuid() == 0 and _drop_capabilities():
        held.append("capabilities")
    if _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0:
        held += ["landlock"] if _landlock(writable) else []
        held += ["seccomp"] if _seccomp() else []
    if "seccomp" not in held:
        sys.addaudithook(_refuse_sockets)
        held.append("audit")
    return held


def _refuse_sockets(event: str, args: tuple[object, ...]) -> None:
    if event in ("socket.connect", "socket.bind", "socket.getaddrinfo", "socket.sendto"):
        raise PermissionError(errno.EPERM, "a candidate has no network")


def _drop_capabilities() -> bool:
    """Root gives up every capability but that of reading any file."""
    for number in range(_CAPABILITIES):
        if number != _CAP_DAC_READ_SEARCH:
            _libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0)
    header = ctypes.create_string_buffer(struct.pack("<Ii", 0x20080522, 0))
    kept = 1 << _CAP_DAC_READ_SEARCH
    data = ctypes.create_string_buffer(struct.pack("<6I", kept, kept, 0, 0, 0, 0))
    return bool(_libc.capset(header, data) == 0)


# -- landlock ---------------------------------------------------------------------------------------------------------

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_CHARACTER_FIFO_BLOCK_OR_LINK = 1 << 6 | 1 << 10 | 1 << 11 | 1 << 12  # what a reader could be caught by
_ALL_OF_ABI_1, _REFER, _TRUNCATE = (1 << 13) - 1, 1 << 13, 1 << 14
_TCP_BIND_AND_CONNECT, _ABSTRACT_SOCKETS_AND_SIGNALS = 3, 3


def _landlock(writable: Iterable[str]) -> bool:
    abi = _libc.syscall(_CREATE_RULESET, None, 0, 1)
    if abi < 1:
        return False
    handled = _ALL_OF_ABI_1 | (_REFER if abi >= 2 else 0) | (_TRUNCATE if abi >= 3 else 0)
    net, scoped = (_TCP_BIND_AND_CONNECT if abi >= 4 else 0), (_ABSTRACT_SOCKETS_AND_SIGNALS if abi >= 6 else 0)
    attributes = struct.pack("<QQQ", handled, net, scoped)[: 24 if abi >= 6 else 16 if abi >= 4 else 8]
    ruleset = _libc.syscall(_CREATE_RULESET, attributes, len(attributes), 0)
    if ruleset < 0:
        return False
    try:
        _allow(ruleset, "/", _EXECUTE | _READ_FILE | _READ_DIR)
        for folder in writable:
            _allow(ruleset, folder, handled & ~_CHARACTER_FIFO_BLOCK_OR_LINK)
        for path in (p for pattern in _DEVICES for p in glob.glob(pattern)):
            rights = _WRITE_FILE | _READ_FILE | (handled & _TRUNCATE)
            _allow(ruleset, path, rights | _READ_DIR if os.path.isdir(path) else rights)
        return bool(_libc.syscall(_RESTRICT_SELF, ruleset, 0) == 0)
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        _libc.syscall(_ADD_RULE, ruleset, 1, struct.pack("<Qi", rights, handle), 0)
    finally:
        os.close(handle)


# -- seccomp ----------------------------------------------------------------------------------------------------------

_LOAD, _EQUAL, _ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_ALLOWED, _FAILED, _KILLED = 0x7FFF0000, 0x00050000, 0x80000000
_AF_UNIX, _NAMESPACES, _SETOWN = 1, 0x7E020000, (8, 15)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def _seccomp() -> bool:
    if platform.machine() not in _MACHINES or sys.maxsize < 1 << 32:
        return False
    code = _filter(*_MACHINES[platform.machine()], os.getpid())
    buffer = ctypes.create_string_buffer(code, len(code))
    program = _Program(len(code) // 8, ctypes.addressof(buffer))
    return bool(_libc.prctl(_PR_SET_SECCOMP, 2, ctypes.byref(program), 0, 0) == 0)


def _filter(architecture: int, calls: dict[str, object], own: int) -> bytes:
    """The program: a comparison and its answer for each system call, in the order tried; the rest is allowed.

    Arguments are compared by their low 32 bits (the machines are little-endian): pids, flags and domains are ints.
    """

    def step(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
        return struct.pack("<HBBI", code, yes, no, value & 0xFFFFFFFF)

    eperm = step(_RETURN, _FAILED | errno.EPERM)
    allowed = step(_RETURN, _ALLOWED)

    def when(call: object, *body: bytes) -> bytes:
        assert isinstance(call, int)
        return step(_EQUAL, call, 0, len(body)) + b"".join(body)

    def argument(number: int) -> bytes:
        return step(_LOAD, 16 + 8 * number)

    own_only = (argument(0), step(_EQUAL, own, 1, 0), eperm, allowed)
    parts = [
        step(_LOAD, 4), step(_EQUAL, architecture, 1, 0), step(_RETURN, _KILLED), step(_LOAD, 0),
        *(when(c, eperm) for c in calls["refused"]),  # type: ignore[attr-defined]
        when(calls["socket"], argument(0), step(_EQUAL, _AF_UNIX, 1, 0), eperm, allowed),
        when(calls["kill"], *own_only),
        when(calls["tgkill"], *own_only),
        when(calls["fcntl"], argument(1), step(_EQUAL, _SETOWN[0], 1, 0), step(_EQUAL, _SETOWN[1], 0, 1), eperm,
             allowed),
        when(calls["clone"], argument(0), step(_ANY_BIT, _NAMESPACES, 0, 1), eperm, allowed),
        when(calls["clone3"], step(_RETURN, _FAILED | errno.ENOSYS)),
        when(calls["prlimit64"], argument(0), step(_EQUAL, 0, 1, 0), eperm, allowed),
        allowed,
    ]  # fmt: skip
    return b"".join(parts)
