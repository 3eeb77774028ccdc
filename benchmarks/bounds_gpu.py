"""Honest GPU kernels against the oracle's bound: cuBLAS, cuDNN, fused attention, Triton, torch.compile.

Writes the required λ of every (kernel, operation, dtype, N) and its histogram to ``--out``. Needs one CUDA device;
`--device cpu` tries the script itself without the Triton and compiled parts.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).parent))
import bounds_depth
import bounds_eager as eager
import bounds_modules as modules
import bounds_triton

from kcontract.dynamic import inputs as gen
from kcontract.dynamic import oracle
from kcontract.dynamic.oracle.compare import FEW

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
HALF = {"fp16": "float16", "bf16": "bfloat16"}
KINDS = (
    "normal",
    "uniform",
    "signs",
    "cancelling",
    "wide",
    "large_mean",
    "sparse",
    "spike_last",
    "tiny_scale",
    "shifted",
    "steep",
    "peaked",
)
EDGES = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, float("inf"))


class Record:
    """Required λ by (kernel, operation, dtype, N)."""

    def __init__(self) -> None:
        self.cases: dict[str, list[float]] = defaultdict(list)
        self.alarms: list[str] = []
        self.high: list[str] = []
        self.refused: dict[str, str] = {}
        self.transforms: list[str] = []
        self.ratios: list[float] = []
        self.places = {"cpu": 0, "device": 0}

    def add(
        self, kernel: str, name: str, dtype: str, n: int, found: list[Any], expected: list[Any], label: str
    ) -> None:
        """Compare all outputs of one run."""
        results = [oracle.compare(f.detach().to(e.dtype), e) for f, e in zip(found, expected, strict=True)]
        for f in found:
            self.places["cpu" if f.numel() <= FEW else "device"] += 1
        need = max(r.required for r in results)
        self.cases[f"{kernel}|{name}|{dtype}|{n}"].append(need)
        if need > 4:
            self.high.append(f"{kernel} {name} {dtype} N={n} {label}: {need:.2f}")
        self.ratios.append(max(r.ratio for r in results))
        for r in results:
            if not r.ok:
                self.alarms.append(
                    f"{kernel} {name} {dtype} N={n} {label} {r.output} {r.reason} "
                    f"ratio {r.ratio:.3g} required {r.required:.3g} {r.index} {r.found} {r.wanted} {r.allowed}"
                )

    def take(self, other: Record) -> None:
        """Add what another process recorded."""
        for key, values in other.cases.items():
            self.cases[key] += values
        self.alarms += other.alarms
        self.high += other.high
        self.refused |= other.refused
        self.transforms += other.transforms
        self.ratios += other.ratios
        for place, count in other.places.items():
            self.places[place] += count

    def summary(self) -> dict[str, Any]:
        """Counts, histogram a kernel family, and the cases that needed most."""
        histogram: dict[str, list[int]] = defaultdict(lambda: [0] * len(EDGES))
        most: dict[str, float] = {}
        for key, values in self.cases.items():
            most[key] = max(values)
            for value in values:
                histogram[key.split("|")[0]][next(k for k, e in enumerate(EDGES) if value < e or e == EDGES[-1])] += 1
        ratios = sorted(self.ratios)
        return {
            "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
            "torch": torch.__version__,
            "runs": len(ratios),
            "outputs compared on the CPU": self.places["cpu"],
            "outputs compared on the device": self.places["device"],
            "alarms": self.alarms,
            "above λ 4": self.high,
            "median error/bound": ratios[len(ratios) // 2] if ratios else None,
            "required λ max": max(most.values(), default=0.0),
            "histogram edges": [str(e) for e in EDGES],
            "histogram": dict(histogram),
            "required λ by case": {k: round(v, 3) for k, v in sorted(most.items(), key=lambda c: -c[1])},
            "refused": self.refused,
            "transforms": self.transforms,
        }


def _norm(x: Any, w: Any) -> Any:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * w


ROWS: dict[str, Callable[..., Any]] = {
    "sum": lambda x: x.sum(-1),
    "mean": lambda x: x.mean(-1),
    "var": lambda x: x.var(-1),
    "softmax": lambda x: torch.softmax(x, -1),
    "log_softmax": lambda x: torch.log_softmax(x, -1),
    "logsumexp": lambda x: torch.logsumexp(x, -1),
    "cumsum": lambda x: x.cumsum(-1),
    "vector norm": lambda x: torch.linalg.vector_norm(x, dim=-1),
    "amax": lambda x: x.amax(-1),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "gelu": F.gelu,
    "silu": F.silu,
    "exp": lambda x: torch.exp(-x.abs()),
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "rsqrt": lambda x: torch.rsqrt(x.abs() + 1e-3),
    "softplus": F.softplus,
    "mish": F.mish,
    "erf": torch.erf,
    "sin": torch.sin,
}
COMPOSITE = ("logsumexp", "rsqrt", "exp")
"""Several eager kernels each: in half precision their intermediates are stored in half."""
BACKWARD = ("softmax", "log_softmax", "logsumexp", "layer_norm", "gelu", "silu", "tanh", "mish", "sum", "cumsum")
FUSED = {
    "softmax": ROWS["softmax"],
    "layer_norm": ROWS["layer_norm"],
    "rms_norm": lambda x: x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-5).to(x.dtype),
    "logsumexp": ROWS["logsumexp"],
    "gelu": F.gelu,
    "mish": F.mish,
    "sum": ROWS["sum"],
    "var": ROWS["var"],
    "cross entropy": lambda x: -(torch.log_softmax(x, -1)[..., 0]),
    "cumsum": ROWS["cumsum"],
}


def stepwise(dname: str) -> oracle.Accumulation:
    """Float32 sums; in half precision each operation's result is stored in the input's type."""
    model = oracle.Accumulation.fp32()
    return model if dname == "fp32" else model.stepwise(oracle.form_of(HALF[dname]))


def rows(record: Record, device: str, seeds: range, sizes: tuple[int, ...]) -> None:
    """torch's CUDA kernels on rows, forward and backward, and the hand-written Triton ones."""
    for n in sizes:
        for seed in seeds:
            for dname, dtype in DTYPES.items():
                kind = KINDS[(seed + n) % len(KINDS)]
                x = gen.draw(kind, (16, n), dtype, seed).to(device)
                for name, fn in ROWS.items():
                    grads = name in BACKWARD
                    leaf = x.clone().requires_grad_(grads)
                    strict = oracle.run(fn, [leaf.detach()], seed=seed)
                    told = strict
                    if dtype is not torch.float32 or grads:  # a saved result is read back in the input's type
                        told = oracle.run(fn, [leaf], model=stepwise(dname), grads=grads, seed=seed)
                    out = fn(leaf)
                    first = told if name in COMPOSITE else strict
                    if name == "cumsum" and dtype is not torch.float32:  # torch scans half in half
                        model = oracle.Accumulation.of(oracle.form_of(HALF[dname]))
                        first = told = oracle.run(fn, [leaf], model=model, grads=True, seed=seed)
                    record.add("ATen", name, dname, n, [out], list(first.outputs), f"{kind} {seed}")
                    if grads:
                        g = torch.autograd.grad(out, leaf, told.upstream[0].to(device))
                        record.add(
                            "ATen", name + " backward", dname, n, list(g), list(told.grads.values()), f"{kind} {seed}"
                        )
                    if device == "cuda" and name in bounds_triton.KERNELS:
                        record.add(
                            "Triton",
                            name,
                            dname,
                            n,
                            [bounds_triton.run(name, x)],
                            list(strict.outputs),
                            f"{kind} {seed}",
                        )


def products(record: Record, device: str, seeds: range, sizes: tuple[int, ...]) -> None:
    """cuBLAS: mm and bmm, forward and backward; fp32 with and without tf32; a Triton dot."""
    for k in sizes:
        for seed in seeds:
            kind = KINDS[(seed * 3 + k) % len(KINDS)]
            for dname, dtype in [*DTYPES.items(), ("tf32", torch.float32)]:
                model = oracle.Accumulation.tf32() if dname == "tf32" else oracle.Accumulation.fp32()
                a = gen.draw(kind, (128, k), dtype, seed).to(device).requires_grad_()
                b = (
                    gen.draw("uniform" if seed % 4 == 3 else "normal", (k, 64), dtype, seed + 1, axis=0)
                    .to(device)
                    .requires_grad_()
                )
                torch.backends.cuda.matmul.allow_tf32 = dname == "tf32"
                told = oracle.run(torch.matmul, [a, b], model=model, grads=True, seed=seed)
                out = a @ b
                g = torch.autograd.grad(out, [a, b], told.upstream[0].to(device))
                record.add("cuBLAS", "mm", dname, k, [out], list(told.outputs), f"{kind} {seed}")
                record.add("cuBLAS", "mm backward", dname, k, list(g), list(told.grads.values()), f"{kind} {seed}")
                if device == "cuda":
                    record.add(
                        "Triton",
                        "dot",
                        dname,
                        k,
                        [bounds_triton.matmul(a.detach(), b.detach(), dname == "tf32")],
                        list(told.outputs),
                        f"{kind} {seed}",
                    )
                torch.backends.cuda.matmul.allow_tf32 = False
                if dname != "tf32":
                    x, y = (t.detach().reshape(4, -1, s).contiguous() for t, s in ((a, k), (b, 64)))
                    y = y.repeat(1, 4, 1)[:, :k].contiguous()
                    told = oracle.run(torch.bmm, [x, y], seed=seed)
                    record.add("cuBLAS", "bmm", dname, k, [torch.bmm(x, y)], list(told.outputs), f"{kind} {seed}")


CONVS = (
    ((2, 16, 32, 32), (32, 16, 3, 3), {"padding": 1}),
    ((2, 64, 14, 14), (64, 64, 3, 3), {"padding": 1}),
    ((2, 128, 14, 14), (64, 128, 1, 1), {}),
    ((2, 8, 32, 32), (16, 8, 7, 7), {"stride": 2, "padding": 3}),
    ((2, 32, 16, 16), (32, 1, 3, 3), {"groups": 32, "padding": 1}),
    ((1, 16, 64, 64), (16, 16, 5, 5), {"padding": 2}),
)


def transforms_of(work: Callable[[], Any]) -> list[str]:
    """The names of the kernels of Winograd's or Fourier's transforms among those that ``work()`` launches."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        work()
        torch.cuda.synchronize()
    names = (event.key for event in seen.key_averages())
    return [name for name in names if "winograd" in name.lower() or "fft" in name.lower()]


def convolutions(record: Record, device: str, seeds: range) -> None:
    """cuDNN convolutions by the algorithm it finds fastest, forward and backward.

    Winograd's and Fourier's transforms are no sums of products: a run that needs λ > 4 is set apart where its kernels'
    names tell of one (``transforms``), and is no honest run of what the oracle bounds.
    """
    torch.backends.cudnn.benchmark = True
    for seed in seeds:
        for shape, weight, options in CONVS:
            n = weight[1] * weight[2] * weight[3]
            for dname, dtype in DTYPES.items():
                kind = ("normal", "uniform", "wide", "sparse")[seed % 4]
                x = gen.draw(kind, shape, dtype, seed).to(device).requires_grad_()
                w = (gen.draw("normal", weight, torch.float64, seed + 1) / n**0.5).to(device, dtype).requires_grad_()

                def fn(x: Any, w: Any, options: Any = options) -> Any:
                    return F.conv2d(x, w, **options)

                told = oracle.run(fn, [x, w], grads=True, seed=seed)
                out, up = fn(x, w), told.upstream[0].to(device)
                back = lambda out=out, up=up, x=x, w=w: torch.autograd.grad(out, [x, w], up, retain_graph=True)  # noqa: E731
                for name, work, expected in (
                    (f"conv {weight}", lambda: [fn(x, w)], list(told.outputs)),  # noqa: B023
                    (f"conv {weight} backward", back, list(told.grads.values())),
                ):
                    found = work()
                    need = max(oracle.compare(f.detach(), e).required for f, e in zip(found, expected, strict=True))
                    transforms = transforms_of(work) if need > 4 else []
                    if transforms:
                        record.transforms.append(f"{name} {dname} {kind} {seed}: λ {need:.3g}, {transforms[0]}")
                    else:
                        record.add("cuDNN", name, dname, n, list(found), expected, f"{kind} {seed}")


def attention(record: Record, device: str, seeds: range) -> None:
    """Fused attention by each backend the device has; its gradients too."""
    kinds = torch.nn.attention.SDPBackend
    for seed in seeds:
        for length in (64, 200, 1024):
            for dname, dtype in DTYPES.items():
                q, k, v = (
                    gen.draw(("normal", "uniform", "signs")[seed % 3], (2, 2, length, 64), dtype, seed * 7 + j)
                    .to(device)
                    .requires_grad_()
                    for j in range(3)
                )
                causal = bool(seed % 2)

                def fn(q: Any, k: Any, v: Any, causal: bool = causal) -> Any:
                    return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

                # Every fused kernel stores P (and dS) in the input type before the second product.
                told = oracle.run(fn, [q, k, v], model=stepwise(dname), grads=True, seed=seed)
                for backend in (kinds.FLASH_ATTENTION, kinds.EFFICIENT_ATTENTION, kinds.CUDNN_ATTENTION, kinds.MATH):
                    try:
                        with torch.nn.attention.sdpa_kernel(backend):
                            out = fn(q, k, v)
                            g = torch.autograd.grad(out, [q, k, v], told.upstream[0].to(device))
                    except RuntimeError as error:
                        record.refused[f"{backend.name} {dname} {length}"] = str(error)[:80]
                        continue
                    record.add("SDPA", backend.name.lower(), dname, length, [out], list(told.outputs), f"{seed}")
                    record.add(
                        "SDPA",
                        backend.name.lower() + " backward",
                        dname,
                        length,
                        list(g),
                        list(told.grads.values()),
                        f"{seed}",
                    )


def whole_modules(record: Record, device: str, seeds: range) -> None:
    """All modules of the CPU benchmark by the device's eager kernels."""
    for case in modules.ALL:
        for dname in ("fp32", "bf16"):
            dtype = DTYPES[dname]
            for seed in seeds:
                module, tensors = eager.make(case, 1, dtype, eager.KINDS[seed % len(eager.KINDS)], seed, device)
                model = stepwise(dname)
                if "cumsum" in case.name and dname == "bf16":
                    model = oracle.Accumulation.of(oracle.form_of("bfloat16")).stepwise(oracle.form_of("bfloat16"))
                # cuDNN's recurrent layers have no float64 rule: their reference runs on the CPU, step by step.
                home = "cpu" if case.name in ("lstm", "gru") else device
                twin, values = eager.make(case, 1, dtype, eager.KINDS[seed % len(eager.KINDS)], seed, home)
                told = oracle.run(twin, values, model=model, grads=eager.differentiable(case), seed=seed)
                try:
                    # cuDNN 9.19 forms recurrent products of up to 64 units from factors of some 19 bits: one of 16
                    # terms errs by 46u·Σ|ab|, three times gamma_16; a layer needs λ up to 8.6. Torch's own are judged.
                    with torch.backends.cudnn.flags(enabled=home == device, allow_tf32=False):
                        outs, grads = eager.eager(module, tensors, tuple(u.to(device) for u in told.upstream))
                except RuntimeError as error:
                    record.refused[f"{case.name} {dname}"] = str(error)[:80]
                    continue
                record.add("modules", case.name, dname, told.longest, outs, list(told.outputs), f"{seed}")
                if told.grads:
                    record.add(
                        "modules",
                        case.name + " backward",
                        dname,
                        told.longest,
                        grads,
                        list(told.grads.values()),
                        f"{seed}",
                    )


def compiled(record: Record, device: str, seeds: range) -> None:
    """torch.compile of fused rows, forward, every dtype."""
    for name, fn in FUSED.items():
        for dname, dtype in DTYPES.items():
            torch._dynamo.reset()
            quick = torch.compile(fn, dynamic=False)
            for n in (1000, 4096):
                for seed in seeds:
                    kind = KINDS[(seed + n) % len(KINDS)]
                    x = gen.draw(kind, (16, n), dtype, seed).to(device)
                    told = oracle.run(fn, [x], seed=seed)
                    record.add("torch.compile", name, dname, n, [quick(x)], list(told.outputs), f"{kind} {seed}")


def deep(record: Record, device: str, seeds: range) -> None:
    """Stacked normalisations and residual blocks by the device's eager kernels, 8 deep: float32, and half step by
    step."""
    for family in bounds_depth.FAMILIES:
        if family in ("GRU", "LSTM"):  # cuDNN's recurrent layers have no float64 rule
            continue
        for dname, dtype in DTYPES.items():
            for seed in seeds:
                module, tensors = bounds_depth.make(family, 8, seed, dtype)
                module, tensors = module.to(device), [t.detach().to(device).requires_grad_() for t in tensors]
                told = oracle.run(module, tensors, model=stepwise(dname), grads=True, seed=seed)
                outs, grads = eager.eager(module, tensors, tuple(u.to(device) for u in told.upstream))
                record.add("deep", family, dname, told.longest, outs, list(told.outputs), f"{seed}")
                record.add(
                    "deep", family + " backward", dname, told.longest, grads, list(told.grads.values()), f"{seed}"
                )


PARTS: dict[str, tuple[Callable[[Record, str, range], None], float]] = {
    "modules": (whole_modules, 1 / 3),
    "deep": (deep, 1 / 3),
    "compiled": (compiled, 2),
    "attention": (attention, 1),
    "rows": (lambda record, device, seeds: rows(record, device, seeds, (64, 1000, 4096, 16384)), 1),
    "products": (lambda record, device, seeds: products(record, device, seeds, (64, 512, 4096)), 2),
    "convolutions": (convolutions, 1),
}
"""Each part, the slow ones first, and its seeds for one of ``--scale``."""


def one(task: tuple[str, str, int]) -> tuple[str, float, Record, str]:
    """A part with one seed, in a process of its own: its name, seconds, record, and why it stopped (else empty)."""
    name, device, seed = task
    torch.set_num_threads(1)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    record, began, why = Record(), time.perf_counter(), ""
    try:
        PARTS[name][0](record, device, range(seed, seed + 1))
    except Exception as error:  # one part must not cost the others' figures
        why = f"{type(error).__name__}: {error}"[:600]
    return name, time.perf_counter() - began, record, why


def main() -> None:
    """Run everything within ``--limit`` seconds and write ``bounds_gpu.json``, anew after each part and seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--first", type=int, default=2000)
    parser.add_argument("--scale", type=int, default=4)
    parser.add_argument("--limit", type=float, default=240.0)
    parser.add_argument("--jobs", type=int, default=1, help="processes that share the device")
    parser.add_argument("--only", default="", help="run this part only")
    args = parser.parse_args()
    start = time.perf_counter()
    tasks = [
        (name, args.device, args.first + seed)
        for name, (_, share) in PARTS.items()
        if args.only in ("", name) and (name != "compiled" or args.device == "cuda")
        for seed in range(max(1, round(args.scale * share)))
    ]
    record = Record()
    args.out.mkdir(parents=True, exist_ok=True)
    with multiprocessing.get_context("spawn").Pool(args.jobs) as pool:
        done = pool.imap_unordered(one, tasks)
        for _ in tasks:
            try:
                name, seconds, found, why = done.next(max(1.0, args.limit - (time.perf_counter() - start)))
            except multiprocessing.TimeoutError:
                print(f"out of time: {len(tasks)} parts and seeds were asked for", flush=True)
                break
            record.take(found)
            summary = record.summary()
            print(
                f"{name}: {seconds:.0f} s, {summary['runs']} runs so far, {len(summary['alarms'])} alarms, "
                f"most λ {summary['required λ max']:.2f} {'STOPPED ' + why if why else ''}",
                flush=True,
            )
            (args.out / "bounds_gpu.json").write_text(json.dumps(summary, indent=1, ensure_ascii=False) + "\n")
        pool.terminate()
    summary = record.summary()
    for case, *values in eager.overhead(args.device, 10):
        print(
            f"overhead, {case}: run {values[0]:.2f} ms, with gradients {values[1]:.2f} ms, compare {values[2]:.2f} ms"
        )
        summary.setdefault("overhead ms", {})[case] = [round(v, 3) for v in values]
    (args.out / "bounds_gpu.json").write_text(json.dumps(summary, indent=1, ensure_ascii=False) + "\n")
    for line in summary["alarms"][:25]:
        print("ALARM", line)
    for line in summary["transforms"]:
        print("set apart:", line[:200])
    for case, value in list(summary["required λ by case"].items())[:25]:
        print(f"most λ: {case} {value}")
    for kernel, counts in summary["histogram"].items():
        print(kernel, dict(zip(summary["histogram edges"], counts, strict=True)))


if __name__ == "__main__":
    main()
