"""What a candidate may do to its host, one function each; ``honest`` does nothing but its work."""

import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
import time


def honest(x):
    return x * 2


def segfault(x):
    ctypes.string_at(0)


def hang(x):
    while True:
        time.sleep(1)


def memory(x):
    kept = []
    while True:
        kept.append(bytearray(64 << 20))


def memory_file(x):
    handle = os.memfd_create("mine")
    while True:
        os.write(handle, bytes(64 << 20))


def fork_bomb(x):
    while True:
        os.fork()


def print_without_end(x):
    while True:
        sys.stdout.write("x" * (1 << 20))


def leave(x):
    raise SystemExit(0)


def leave_at_once(x):
    os._exit(0)


def kill_parent(x):
    for pid in (os.getppid(), 1):
        try:
            os.kill(pid, signal.SIGKILL)
        except PermissionError as error:
            print(error)
    libc = ctypes.CDLL(None)
    libc.kill(os.getppid(), signal.SIGKILL)
    time.sleep(0.3)
    if os.getppid() == 1:
        raise RuntimeError("killed it")
    return x * 2


def huge_file(x):
    with open("huge", "wb") as file:
        while True:
            file.write(bytes(16 << 20))


def write_elsewhere(x):
    with open(os.path.expanduser("/tmp/kcontract-attack"), "w") as file:
        file.write("here")


def close_channel(x):
    os.closerange(3, 64)
    return x * 2


def garbage(x):
    for name in os.listdir("/proc/self/fd"):
        try:
            socket.socket(fileno=os.dup(int(name))).sendall(b"\x00\x00\x00\x05hello" * 9)
        except OSError:
            continue
    return x * 2


def drip(x):
    links = []
    for name in os.listdir("/proc/self/fd"):
        try:
            links.append(socket.socket(fileno=os.dup(int(name))))
        except OSError:
            continue
    while True:
        for link in links:
            link.send(b"\x00")
        time.sleep(0.4)


def truncate(x):
    def cut():
        while True:
            for name in os.listdir("/proc/self/fd"):
                try:
                    os.ftruncate(int(name), 0)
                except OSError:
                    continue

    threading.Thread(target=cut, daemon=True).start()
    time.sleep(0.2)
    return x * 2


def network(x):
    socket.create_connection(("127.0.0.1", 9), timeout=1)


def native_network(x):
    for family in (2, 10, 16, 17):
        if ctypes.CDLL(None).socket(family, 2, 0) >= 0:
            raise RuntimeError(f"a socket of family {family}")
    return x * 2


def read_grader(x):
    """The grader is the parent of the parent of the parent."""
    pid = os.getpid()
    for _ in range(3):
        with open(f"/proc/{pid}/stat") as file:
            pid = int(file.read().rsplit(")", 1)[1].split()[1])
    for name in ("mem", "environ"):
        with open(f"/proc/{pid}/{name}", "rb") as file:
            file.read(1)


def daemon(x):
    """A process in a session of its own whose parent has ended."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(600)", "kcontract-daemon"])
        os._exit(0)
    return x * 2


def start_child(x):
    subprocess.run(["true"], check=True)
    return x * 2


def many_outputs(x):
    return [x.expand(1 << 40, *x.shape)]


def pipe_in_cache(x):
    """Whoever reads the cache would wait for ever."""
    os.mkfifo(os.path.join(os.environ["TRITON_CACHE_DIR"], "kernel.ttgir"))
