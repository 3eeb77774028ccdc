"""Honest runs of whole modules by torch's own kernels, forward and backward, and what the oracle costs on them."""

from __future__ import annotations

import copy
import ctypes
import gc
import time
from typing import Any

import bounds_modules as modules
import torch

from kcontract.dynamic import inputs as gen
from kcontract.dynamic import oracle
from kcontract.dynamic.oracle import form_of

KINDS = ("normal", "uniform", "normal", "sparse", "normal", "wide", "normal", "large_mean")
HALF = {torch.float16: "float16", torch.bfloat16: "bfloat16"}


def make(
    case: modules.Case, scale: int, dtype: Any, kind: str, seed: int, device: str = "cpu"
) -> tuple[Any, list[Any]]:
    """The module, its parameters moved off their initial value, and inputs that require gradients, in ``dtype``."""
    torch.manual_seed(seed)
    module, shapes = case.build(scale)
    with torch.no_grad():
        for p in module.parameters():
            p.add_(torch.randn_like(p) * 0.1)
    tensors = [gen.draw(kind, s, dtype, seed * 31 + k).to(device).requires_grad_() for k, s in enumerate(shapes)]
    return module.to(device, dtype), tensors


def eager(
    module: Any, tensors: list[Any], upstream: tuple[Any, ...] | None, wanted: list[str] | None = None
) -> tuple[list[Any], list[Any]]:
    """Outputs and, for ``upstream`` gradients, the gradients of inputs and parameters in the oracle's order."""
    outs = oracle.outputs_of(module(*tensors))
    if not upstream:
        return outs, []
    leaves = [*tensors, *[p for p in module.parameters() if p.requires_grad]]
    grads = torch.autograd.grad([o for o in outs if o.requires_grad], leaves, list(upstream), allow_unused=True)
    return outs, [torch.zeros_like(leaf) if g is None else g for g, leaf in zip(grads, leaves, strict=True)]


def widened(module: Any, tensors: list[Any]) -> tuple[Any, list[Any]]:
    """The same values in float32: what a fused kernel with float32 intermediates computes before its one rounding."""
    return copy.deepcopy(module).float(), [t.detach().float().requires_grad_() for t in tensors]


def differentiable(case: modules.Case) -> bool:
    """False for modules whose result is an index."""
    return case.name != "argmax"


def _half_sums(module: Any, batch: int, dtype: Any) -> int:
    """How many terms torch's CPU convolutions add up in half precision: a transposed one its taps; in a type without
    native kernels (float16; bfloat16 on a processor without such units, λ 8.1 for it) any convolution's input gradient
    its taps, its weight gradient the samples of a batch."""
    found = [m for m in module.modules() if isinstance(m, torch.nn.modules.conv._ConvNd)]
    if dtype is torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported():
        found = [m for m in found if m.transposed]
    return max((batch, *(m.weight[0, 0].numel() for m in found))) if found else 0


def runs(tally: Any, seeds: range, held_out: bool, dtypes: dict[str, Any]) -> list[str]:
    """Every module, dtype and seed: eager in its own dtype under the stepwise model, and float32 rounded once.

    Returns the operations that were only estimated.
    """
    estimated: set[str] = set()
    for case in modules.ALL:
        if case.held_out is not held_out:
            continue
        for name, dtype in dtypes.items():
            for seed in seeds:
                kind = KINDS[seed % len(KINDS)]
                module, tensors = make(case, 1, dtype, kind, seed)
                label = f"{case.name} {name} {kind} seed {seed}"
                wide_module, wide_tensors = widened(module, tensors)
                ways = [("fused", oracle.Accumulation.fp32(), wide_module, wide_tensors)]
                if dtype in HALF:
                    half = form_of(HALF[dtype])
                    model = oracle.Accumulation.fp32()
                    # torch's CPU kernels add in half: affine gradients over rows, and what ``_half_sums`` tells
                    sums = _half_sums(module, tensors[0].shape[0], dtype)
                    if sums:
                        model = model.split(sums, half)
                    elif any(word in case.name for word in ("norm", "embedding", "transformer")):
                        model = model.split(32, half)
                    ways.append(("eager", model.stepwise(half), module, tensors))
                for way, model, candidate, values in ways:
                    told = oracle.run(module, tensors, model=model, grads=differentiable(case), seed=seed)
                    estimated.update(told.estimated)
                    upstream = tuple(u.to(values[0].dtype) for u in told.upstream)
                    try:
                        outs, grads = eager(candidate, values, upstream)
                    except RuntimeError as error:
                        if "not implemented" not in str(error):
                            raise
                        continue
                    plain_outs, plain_grads = eager(wide_module, wide_tensors, tuple(u.float() for u in told.upstream))
                    for part, found, plain, expected in (
                        ("forward", outs, plain_outs, list(told.outputs)),
                        ("backward", grads, plain_grads, list(told.grads.values())),
                    ):
                        if not expected:
                            continue
                        found = [f.detach().to(e.dtype) for f, e in zip(found, expected, strict=True)]
                        plain = [p.detach().to(e.dtype) for p, e in zip(plain, expected, strict=True)]
                        results = [oracle.compare(f, e) for f, e in zip(found, expected, strict=True)]
                        tally.add(
                            f"{label} {way} {part}",
                            f"{case.name}/{name}/{way}/{part}",
                            results,
                            expected,
                            found,
                            told.longest,
                            plain,
                        )
    return sorted(estimated)


def _peak(work: Any) -> float:
    """Peak extra resident bytes of ``work()`` (Linux, glibc: freed memory is handed back and the mark reset first)."""
    libc = ctypes.CDLL(None)
    libc.mallopt(-3, 65536)  # M_MMAP_THRESHOLD: every tensor gets pages of its own
    gc.collect()
    libc.malloc_trim(0)
    with open("/proc/self/clear_refs", "w") as f:
        f.write("5")
    before = _status("VmRSS")
    work()
    return max(_status("VmHWM") - before, 0) * 1024.0


def _status(key: str) -> int:
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith(key))


SCALES = (1, 2, 4, 8, 16, 32, 64)


def cost(least: float, backward: bool, only: str = "") -> list[tuple[str, int, float, float, float]]:
    """Time and memory of the oracle over the plain float64 run, both from float32 inputs and parameters.

    A row is (module, scale, time ratio, seconds, memory ratio), memory being inputs, parameters and the run's peak.
    Each module at the first scale whose plain run takes ``least`` seconds of processor time, one thread. All times
    are taken before memory is looked at, since that changes how the process allocates.
    """
    torch.set_num_threads(1)
    timed = []
    for case in modules.ALL:
        if only and case.name != only:
            continue
        for scale in SCALES:
            plain, bounded, held = _pair(case, scale, backward)
            base = min(_seconds(plain) for _ in range(2))
            if base >= least:
                break
        time_ = min(_seconds(bounded) for _ in range(3))
        base = min(base, _seconds(plain), _seconds(plain))
        timed.append((case, scale, time_ / base, time_, base))
    found = []
    for case, scale, ratio, time_, base in timed:
        plain, bounded, held = _pair(case, scale, backward)
        memory = (held + _peak(bounded)) / max(held + _peak(plain), 1 << 20)
        print(f"  {case.name} {scale}: {ratio:.1f}x of {1e3 * base:.0f} ms, memory {memory:.1f}x", flush=True)
        found.append((case.name, scale, ratio, time_, memory))
    return found


def _pair(case: modules.Case, scale: int, backward: bool) -> tuple[Any, Any, int]:
    """The plain float64 run, the bounded one, and the bytes of inputs and parameters in float64."""
    grads = backward and differentiable(case)
    module, tensors = make(case, scale, torch.float32, "normal", 0)

    def plain() -> None:
        double = [t.detach().double().requires_grad_() for t in tensors]
        module64 = copy.deepcopy(module).double()
        with torch.set_grad_enabled(grads):
            outs = oracle.outputs_of(module64(*double))
            if grads:
                wanted = [*double, *module64.parameters()]
                torch.autograd.grad(outs, wanted, [torch.randn_like(o) for o in outs], allow_unused=True)

    def bounded() -> None:
        oracle.run(module, tensors, grads=grads)

    return plain, bounded, sum(t.numel() * 8 for t in [*tensors, *module.parameters()])


def _seconds(work: Any) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


TINY: dict[str, tuple[Any, list[tuple[int, ...]]]] = {
    "softmax 8x64": (lambda x: torch.softmax(x, -1), [(8, 64)]),
    "matmul 32x32x32": (torch.matmul, [(32, 32), (32, 32)]),
    "layer norm 8x64": (lambda x, w, b: torch.nn.functional.layer_norm(x, (64,), w, b), [(8, 64), (64,), (64,)]),
    "linear module 8x64": (torch.nn.Linear(64, 64), [(8, 64)]),
    "attention 2x32x32": (torch.nn.functional.scaled_dot_product_attention, [(1, 2, 32, 32)] * 3),
}


def overhead(device: str = "cpu", repeats: int = 30) -> list[tuple[str, float, float, float]]:
    """What one call costs at tiny shapes, in milliseconds (of processor time on the CPU): (case, run, run with
    gradients, compare)."""
    clock = time.perf_counter if device == "cuda" else time.process_time
    found = []
    for name, (reference, shapes) in TINY.items():
        call = reference.to(device) if isinstance(reference, torch.nn.Module) else reference
        tensors = [gen.draw("normal", s, torch.float32, k).to(device) for k, s in enumerate(shapes)]
        leaves = [t.clone().requires_grad_() for t in tensors]
        told = oracle.run(call, tensors)
        results = [o.value.float() for o in told.outputs]
        times = []
        for work in (
            lambda c=call, t=tensors: oracle.run(c, t),
            lambda c=call, t=leaves: oracle.run(c, t, grads=True),
            lambda r=results, t=told: oracle.compare_all(r, t),
        ):
            work()
            start = clock()
            for _ in range(repeats):
                work()
            if device == "cuda":
                torch.cuda.synchronize()
            times.append(1e3 * (clock() - start) / repeats)
        found.append((name, times[0], times[1], times[2]))
    return found
