"""Times the gated delta rule on this GPU: kcontract's kernels, and flash-linear-attention and FlashQLA where they are
installed.

    python benchmarks/gdn_backward.py [--peers] [--sizes 1x2048x8x8,8x2048x32x32]

A size is B x T x H x HV; K = V = 128, bfloat16, no initial state. One line a case: device time (the sum of the kernels'
times, from the profiler), eager time and launches, all medians in ms, and the ratio to the floor or to ours. The floor
is 224 KB a chunk and head, what two fused passes must move, over 4.3 TB/s, an H200's copy bandwidth.

`--peers` re-times the installed peers too, at two sizes unless told otherwise, after the dated table below, which holds
their tuned figures. Each peer and size runs in a process of its own that is ended after LIMIT seconds. On Hopper with
Triton 3.4 to 3.7.0 flash-linear-attention refuses this backward (wrong dbeta and dg), so there it is switched on for
timing only. Its tuning takes minutes a size, so each of its kernels is pinned to one configuration: the line says so,
and its time is an upper bound of what tuning would find.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Any

SIZES = "1x2048x8x8,8x2048x32x32"

LIMIT = 70
"""Seconds a peer has for one size, its imports and its compiling included: the default sizes end within 200."""

PEERS = {"fla": "fla.ops.gated_delta_rule", "flash_qla": "flash_qla"}
"""Module of each peer's `chunk_gated_delta_rule`."""

PINNED = "not tuned: each kernel pinned to its first configuration of 4 warps"

SHOW = "device {device:.3f} eager {eager:.3f} launches {launches} forward {forward:.3f}"

PEERS_ON_H200 = {
    # (B, T, H, HV): {peer: (device ms or None, eager ms)}; backward, bfloat16, K = V = 128; device sums kernel times.
    # Measured by 2026-11-29 on one H200, torch 2.11, CUDA 13.0: FlashQLA 0.1.3, and fla 0.6.0 under Triton 3.9.0 (its
    # device time under 3.6.0).
    (1, 512, 8, 8): {"fla": (None, 1.409)},
    (1, 2048, 8, 8): {"fla": (0.188, 1.426), "flash_qla": (0.112, 0.458)},
    (1, 8192, 8, 8): {"fla": (None, 1.378)},
    (1, 8192, 16, 32): {"flash_qla": (0.535, 0.876)},
    (2, 4096, 16, 16): {"fla": (None, 1.658)},
    (8, 2048, 32, 32): {"fla": (None, 2.389), "flash_qla": (0.928, 0.914)},
    (1, 32768, 32, 32): {"fla": (None, 5.927), "flash_qla": (1.784, 1.818)},
}


def inputs(B: int, T: int, H: int, HV: int) -> list[Any]:
    import torch

    torch.manual_seed(0)
    draw = lambda *shape: torch.randn(B, T, *shape, device="cuda")  # noqa: E731
    q, k = (torch.nn.functional.normalize(draw(H, 128), dim=-1).bfloat16() for _ in range(2))
    made = [q, k, draw(HV, 128).bfloat16(), -0.1 * draw(HV).abs(), draw(HV).sigmoid()]
    return [x.requires_grad_() for x in made]


def device_time(call: Callable[[], Any], repeats: int = 5) -> tuple[float, int]:
    """Sum of kernel times in ms and kernels, a call, as the profiler sees them."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    call()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(repeats):
            call()
        torch.cuda.synchronize()
    kernels = [e for e in seen.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    return sum(e.self_device_time_total for e in kernels) / repeats / 1000, round(len(kernels) / repeats)


def measure(function: Callable[..., Any], size: tuple[int, ...]) -> dict[str, float]:
    import torch
    import triton

    leaves = inputs(*size)
    o = function(*leaves)[0]
    do = torch.randn_like(o)
    backward = lambda: torch.autograd.grad(o, leaves, do, retain_graph=True)  # noqa: E731
    forward = lambda: function(*(x.detach() for x in leaves))  # noqa: E731
    device, launches = device_time(backward)
    eager = triton.testing.do_bench(backward, warmup=10, rep=50, return_mode="median")
    return {"forward": device_time(forward)[0], "device": device, "eager": eager, "launches": launches}


def graph_time(size: tuple[int, ...]) -> float:
    """Our backward's launches alone, replayed from a CUDA graph, in ms."""
    import triton

    from kcontract.kernels.gdn import launch
    from kcontract.kernels.gdn.problem import check

    q, k, v, g, beta = (x.detach() for x in inputs(*size))
    p = check(q, k, v, g, beta)
    chunks = launch.locate(p, q, None)
    _, _, x = launch.forward(p, chunks, q, k, v, g, beta, None, False)
    call = lambda: launch.backward(p, chunks, q, k, v, g, beta, x.kept, None, v, None)  # noqa: E731
    return float(triton.testing.do_bench_cudagraph(call, rep=20, return_mode="median"))


def pin_autotuners() -> None:
    """Leave every autotuner made from here on one configuration, the first of 4 warps, so that nothing is tuned."""
    from triton.runtime.autotuner import Autotuner

    made = Autotuner.__init__

    def pinned(self: Any, fn: Any, arg_names: Any, configs: Any, *args: Any, **kwargs: Any) -> None:
        chosen = [x for x in configs or [] if x.num_warps == 4] or configs or []
        made(self, fn, arg_names, chosen[:1], *args, **kwargs)

    Autotuner.__init__ = pinned


def measure_peer(name: str, size: tuple[int, ...]) -> dict[str, float]:
    os.environ.update(FLA_TILELANG="0", FLA_FLASH_QLA="0")
    pin_autotuners()
    if name == "fla":
        import fla.ops.common.chunk_o as chunk_o

        chunk_o.TRITON_ABOVE_3_7_1 = True
    return measure(importlib.import_module(PEERS[name]).chunk_gated_delta_rule, size)


def bounded(command: list[str], limit: float) -> str | None:
    """What ``command`` printed, or None where it ran past ``limit`` seconds: it is ended then, with all it started."""
    with tempfile.TemporaryFile("w+") as out:
        child = subprocess.Popen(command, stdout=out, start_new_session=True)
        try:
            child.wait(limit)
        except subprocess.TimeoutExpired:
            return None
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
        out.seek(0)
        return out.read()


def peer_line(name: str, text: str, ours: float) -> str:
    if importlib.util.find_spec(PEERS[name].split(".")[0]) is None:
        return f"{name}: not installed"
    printed = bounded([sys.executable, __file__, "--one", name, "--sizes", text], LIMIT)
    if printed is None:
        return f"{text} {name}: not done in {LIMIT} s"
    lines = [line for line in printed.splitlines() if line.startswith("{")]
    if not lines:
        return f"{text} {name}: failed, see its error above"
    got = json.loads(lines[-1])
    note = f" ({PINNED})" if name == "fla" else ""
    return f"{text} {name}: {SHOW.format(**got)} ratio {got['device'] / ours:.2f} of ours{note}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Time the gated delta rule's backward")
    parser.add_argument("--peers", action="store_true", help="re-time the installed peers too")
    parser.add_argument("--sizes", default=SIZES, help="comma-separated BxTxHxHV")
    parser.add_argument("--one", choices=PEERS, help="time one peer at one size, as --peers does, and print JSON")
    options = parser.parse_args()
    sizes = {text: tuple(int(x) for x in text.split("x")) for text in options.sizes.split(",")}
    if options.one:
        (size,) = sizes.values()
        print(json.dumps(measure_peer(options.one, size)))
        return
    from kcontract.kernels.gdn import chunk_gated_delta_rule

    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # so that each size is seen when it is done
    for text, size in sizes.items():
        B, T, _, HV = size
        floor = 224e3 * B * -(-T // 64) * HV / 4.3e12 * 1e3
        ours = measure(chunk_gated_delta_rule, size)
        ratio = ours["device"] / floor
        print(f"{text} ours: {SHOW.format(**ours)} graph {graph_time(size):.3f} floor {floor:.3f} ratio {ratio:.2f}")
        for name, (device, eager) in PEERS_ON_H200.get(size, {}).items():
            compared, kind = (
                (eager / ours["device"], "eager") if device is None else (device / ours["device"], "device")
            )
            print(
                f"{text} {name} (dated): device {device} eager {eager} ratio {compared:.2f} of our device time ({kind})"
            )
        for name in PEERS if options.peers else ():
            print(peer_line(name, text, ours["device"]))


if __name__ == "__main__":
    main()
