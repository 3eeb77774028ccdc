"""Time of the PTX simulator against Triton's interpreter, kernel by kernel, warm, in one run.

    python benchmarks/simulator.py [sm_90 ...]

Times are CPU time of the process, so that a busy machine changes no ratio. One line a case and target: simulator ms
(fast mode), checked mode / fast, interpreter ms, ratio interpreter / simulator, and million lane-instructions a
second. The interpreter runs in a child process of this one, because Triton chooses it at import. The last lines give
the memory that large grids take beyond their tensors, each measured in a process of its own.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests" / "dynamic" / "simulator"))

Case = tuple[str, Callable[[], Any]]


def cases() -> Iterator[Case]:
    """Name and launch of each case; tensors are made once."""
    import simulated_kernels as K
    import torch

    torch.manual_seed(0)

    def softmax(rows: int) -> Case:
        x, o = torch.randn(rows, 1024), torch.empty(rows, 1024)
        return f"softmax {rows}x1024", lambda: K.softmax[(rows,)](x, o, 1024, 1024, BLOCK=1024)

    yield softmax(64)
    yield softmax(512)
    x, w, b, o = torch.randn(64, 1000), torch.randn(1000), torch.randn(1000), torch.empty(64, 1000)
    yield "layernorm 64x1000", lambda: K.layernorm[(64,)](x, w, b, o, 1000, 1e-5, BLOCK=1024)
    big, big_o = torch.randn(1 << 18), torch.empty(1 << 18)
    yield "add 256K", lambda: K.add[(256,)](big, big, big_o, 1 << 18, BLOCK=1024)
    s, so = torch.randn(256), torch.empty(256)
    yield "sort 256", lambda: K.sort[(1,)](s, so, BLOCK=256)
    yield "cumsum 64x1000", lambda: K.cumsum[(64,)](x, o, 1000, BLOCK=1024)
    h, total = torch.randn(4096), torch.zeros(8)
    yield "atomics 4096", lambda: K.float_atomics[(16,)](h, total, 4096, BLOCK=256)

    def matmul(m: int, n: int, k: int) -> Case:
        a, c, d = torch.randn(m, k).half(), torch.randn(k, n).half(), torch.empty(m, n)
        grid = (-(-m // 128), -(-n // 128))
        return f"matmul {m}x{n}x{k}", lambda: K.matmul[grid](
            a, c, d, m, n, k, BM=128, BN=128, BK=64, STAGES=3, TRANS=False
        )

    yield matmul(128, 128, 64)
    yield matmul(512, 512, 512)
    q, kk, v = (torch.randn(256, 64).half() for _ in range(3))
    out = torch.empty_like(q)
    yield "attention 256x64", lambda: K.attention[(4,)](q, kk, v, out, 256, 0.125, BM=64, BN=64, D=64, CAUSAL=False)
    m, n, k = 256, 264, 200
    ta, tb, tc = torch.randn(m, k).half(), torch.randn(n, k).half(), torch.empty(m, n).half()
    yield (
        "tma matmul 256x264x200",
        lambda: K.tma_matmul[(2, 5)](ta, tb, tc, m, n, k, BM=128, BN=64, BK=64, SPECIALISE=True),
    )


def measure(call: Callable[[], Any]) -> float:
    """Median milliseconds of warm calls, at least three and half a second of them."""
    call()
    times: list[float] = []
    start = time.process_time()
    while len(times) < 3 or (time.process_time() - start < 0.5 and len(times) < 50):
        before = time.process_time()
        call()
        times.append((time.process_time() - before) * 1000)
    return statistics.median(times)


def interpreted() -> dict[str, float]:
    """Milliseconds of each case under TRITON_INTERPRET=1."""
    command = [sys.executable, __file__, "--interpret"]
    done = subprocess.run(
        command, env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def large(mode: str) -> None:
    """Print the megabytes by which the process grows over a launch of many CTAs."""
    import simulated_kernels as K
    import torch
    import triton

    from kcontract.dynamic.engines.simulator.driver import simulate
    from kcontract.dynamic.engines.simulator.options import Options

    triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.int8))

    def peak() -> float:
        """Megabytes; of this program alone, unlike ``getrusage``, which counts the parent before ``exec``."""
        status = Path("/proc/self/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) / 1024

    checked = mode.startswith("checked")
    if mode.endswith("add"):
        x, o = torch.ones(1 << 23), torch.zeros(1 << 23)

        def call(part: int = 1 << 23) -> None:
            K.add[(part >> 10,)](x, x, o, part, BLOCK=1024)

        small = 1 << 10
    else:
        a, b, c = torch.ones(2048, 64).half(), torch.ones(2048, 64).half(), torch.zeros(2048, 2048).half()

        def call(part: int = 2048) -> None:
            K.tma_matmul[(part // 128, part // 64)](a, b, c, 2048, 2048, 64, BM=128, BN=64, BK=64, SPECIALISE=True)

        small = 128
    with simulate("sm_90", Options(checked=checked)) as driver:
        call(small)
        before = peak()
        call()
        grown = peak() - before
        assert driver.last is not None
        extent = driver.last.extent
        print(f"memory  {mode:24} {extent[0] * extent[1] * extent[2]:6} CTAs  grows by {grown:6.0f} MB")


def main() -> None:
    if "--large" in sys.argv:
        large(sys.argv[-1])
        return
    if "--interpret" in sys.argv:
        found: dict[str, float] = {}
        for name, call in cases():
            try:
                found[name] = measure(call)
            except Exception as error:
                print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr)
        print(json.dumps(found))
        return
    targets = [a for a in sys.argv[1:] if a.startswith("sm_")] or ["sm_80", "sm_90", "sm_100"]
    os.environ.setdefault("TRITON_CACHE_DIR", tempfile.mkdtemp())
    import torch
    import triton

    from kcontract.dynamic.engines.simulator.driver import simulate
    from kcontract.dynamic.engines.simulator.options import Options

    triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.int8))
    other = interpreted()
    ratios: list[float] = []
    slow: list[float] = []
    for target in targets:
        for name, call in cases():
            with simulate(target) as driver:
                fast = measure(call)
                assert driver.last is not None
                run = driver.last
                lanes = sum(int(v) * (b - a) for v, (a, b) in zip(run.visits, run.kernel.first, strict=True))
            with simulate(target, Options(checked=True)):
                checked = measure(call) / fast
            slow.append(checked)
            line = f"{target:7} {name:24} {fast:9.1f} ms  checked/fast {checked:5.1f}"
            line += f"  {lanes / fast / 1000:8.0f} M lane-instr/s"
            if name in other:
                ratios.append(other[name] / fast)
                line += f"  interpreter {other[name]:9.1f} ms  ratio {ratios[-1]:7.1f}"
            print(line, flush=True)
    print(
        f"interpreter/simulator: median {statistics.median(ratios):.1f}, least {min(ratios):.2f}; checked/fast: "
        f"median {statistics.median(slow):.1f}, most {max(slow):.1f}"
    )
    for mode in ("fast add", "checked add", "fast tma matmul", "checked tma matmul"):
        subprocess.run([sys.executable, __file__, "--large", mode], check=True)


if __name__ == "__main__":
    main()
