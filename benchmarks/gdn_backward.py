"""Times the gated delta rule on this GPU: kcontract's kernels, and flash-linear-attention and FlashQLA where they are
installed.

    python benchmarks/gdn_backward.py [--peers] [--sizes 1x2048x8x8,8x2048x32x32]

A size is B x T x H x HV; K = V = 128, bfloat16, no initial state. One line a case: device time (the sum of the kernels'
times, from the profiler), eager time and launches, all medians in ms, and the ratio to the floor or to ours. The floor
is 224 KB a chunk and head, what two fused passes must move, over 4.3 TB/s, an H200's copy bandwidth.

`--peers` measures the peers too: on Hopper with Triton 3.4 to 3.7.0 flash-linear-attention refuses this backward (wrong
dbeta and dg), so there it is switched on for timing only. Its tuning takes minutes a size. Without it the dated table
below is printed.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import Any

SIZES = "1x2048x8x8,8x2048x32x32"

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


def peers() -> dict[str, Callable[..., Any]]:
    found: dict[str, Callable[..., Any]] = {}
    os.environ.update(FLA_TILELANG="0", FLA_FLASH_QLA="0")
    try:
        import fla.ops.common.chunk_o as chunk_o
        from fla.ops.gated_delta_rule import chunk_gated_delta_rule as theirs

        chunk_o.TRITON_ABOVE_3_7_1 = True
        found["fla"] = theirs
    except ImportError:
        print("fla: not installed")
    try:
        from flash_qla import chunk_gated_delta_rule as qla

        found["flash_qla"] = qla
    except ImportError:
        print("flash_qla: not installed")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Time the gated delta rule's backward")
    parser.add_argument(
        "--peers", action="store_true", help="measure installed peers instead of printing the dated table"
    )
    parser.add_argument("--sizes", default=SIZES, help="comma-separated BxTxHxHV")
    options = parser.parse_args()
    from kcontract.kernels.gdn import chunk_gated_delta_rule

    others = peers() if options.peers else {}
    for text in options.sizes.split(","):
        size = tuple(int(x) for x in text.split("x"))
        B, T, _, HV = size
        floor = 224e3 * B * -(-T // 64) * HV / 4.3e12 * 1e3
        ours = measure(chunk_gated_delta_rule, size)
        show = "device {device:.3f} eager {eager:.3f} launches {launches} forward {forward:.3f}"
        ratio = ours["device"] / floor
        print(f"{text} ours: {show.format(**ours)} graph {graph_time(size):.3f} floor {floor:.3f} ratio {ratio:.2f}")
        for name, function in others.items():
            got = measure(function, size)
            print(f"{text} {name}: {show.format(**got)} ratio {got['device'] / ours['device']:.2f} of ours")
        for name, (device, eager) in ({} if others else PEERS_ON_H200.get(size, {})).items():
            compared, kind = (
                (eager / ours["device"], "eager") if device is None else (device / ours["device"], "device")
            )
            print(
                f"{text} {name} (dated): device {device} eager {eager} ratio {compared:.2f} of our device time ({kind})"
            )


if __name__ == "__main__":
    main()
