"""How the oracle's bound grows with depth beside the true error of float32 kernels: stacked layers and recurrences.

One line a case: the median bound and the root mean square of torch's float32 error, both over the output's size, their
ratio, the λ the honest run needed, and whether zeros, a result 1.1 times as large, and bfloat16 intermediates fail.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

sys.path.insert(0, str(Path(__file__).parent))
import bounds
import bounds_eager as eager

from kcontract.dynamic import oracle

WIDTH = 64
DEPTHS = (1, 2, 4, 8, 16, 32)
LENGTHS = (8, 16, 32, 64, 128)


class Block(nn.Module):
    """One residual block around a two-layer perceptron, normalised before or after."""

    def __init__(self, first: bool, norm: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.first, self.norm = first, norm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Any) -> Any:
        """x + f(norm(x)), or norm(x + f(x))."""
        if self.first:
            return x + self.down(F.gelu(self.up(self.norm(x))))
        return self.norm(x + self.down(F.gelu(self.up(x))))


class Last(nn.Module):
    """A recurrent layer's outputs without its final state."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Any) -> Any:
        """All outputs, time second."""
        return self.layer(x)[0]


def _plain(norm: Callable[[int], nn.Module]) -> Callable[[int], nn.Module]:
    return lambda depth: nn.Sequential(*[m for _ in range(depth) for m in (nn.Linear(WIDTH, WIDTH), norm(WIDTH))])


def _blocks(first: bool, norm: Callable[[int], nn.Module]) -> Callable[[int], nn.Module]:
    return lambda depth: nn.Sequential(*[Block(first, norm) for _ in range(depth)])


def _encoder(depth: int) -> nn.Module:
    layer = nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, dropout=0.0, batch_first=True, activation="gelu")
    return nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)


FAMILIES: dict[str, tuple[Callable[[int], nn.Module], Callable[[int], tuple[int, ...]], tuple[int, ...]]] = {
    "linear, layer norm": (_plain(nn.LayerNorm), lambda d: (16, WIDTH), DEPTHS),
    "linear, RMS norm": (_plain(nn.RMSNorm), lambda d: (16, WIDTH), DEPTHS),
    "linear, batch norm": (_plain(nn.BatchNorm1d), lambda d: (64, WIDTH), DEPTHS),
    "pre-norm blocks": (_blocks(True, nn.LayerNorm), lambda d: (16, WIDTH), DEPTHS),
    "post-norm blocks": (_blocks(False, nn.LayerNorm), lambda d: (16, WIDTH), DEPTHS),
    "pre-RMS-norm blocks": (_blocks(True, nn.RMSNorm), lambda d: (16, WIDTH), DEPTHS),
    "transformer encoder": (_encoder, lambda d: (2, 16, WIDTH), DEPTHS[:5]),
    "GRU": (lambda n: Last(nn.GRU(32, 32, batch_first=True)), lambda n: (2, n, 32), LENGTHS),
    "LSTM": (lambda n: Last(nn.LSTM(32, 32, batch_first=True)), lambda n: (2, n, 32), LENGTHS),
}


class Narrow(TorchDispatchMode):  # type: ignore[misc]
    """Stores every floating result in bfloat16 and reads it back."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        moves = any(r.alias_info is not None for r in func._schema.returns)
        if moves or not isinstance(found, torch.Tensor) or not found.is_floating_point():
            return found
        return found.bfloat16().to(found.dtype)


def make(family: str, depth: int, seed: int, dtype: Any = torch.float32) -> tuple[nn.Module, list[Any]]:
    """The module with parameters moved off their initial values, and a normal input."""
    build, shape, _ = FAMILIES[family]
    torch.manual_seed(seed)
    module = build(depth)
    with torch.no_grad():
        for p in module.parameters():
            p.add_(torch.randn_like(p) * 0.02)
    return module.to(dtype), [torch.randn(shape(depth)).to(dtype).requires_grad_()]


def measure(family: str, depth: int, seed: int, grads: bool) -> dict[str, Any]:
    """The figures of one case: outputs, or the input's gradient with ``grads``."""
    module, inputs = make(family, depth, seed)
    start = time.process_time()
    told = oracle.run(module, inputs, grads=grads, seed=seed)
    seconds = time.process_time() - start
    expected = told.grads["input 0"] if grads else told.outputs[0]

    def result(call: Any, narrow: bool = False) -> Any:
        x = inputs[0].detach().clone().requires_grad_()
        with Narrow() if narrow else torch.enable_grad():
            y = call(x)
            return torch.autograd.grad(y, x, told.upstream[0])[0] if grads else y.detach()

    honest = result(copy.deepcopy(module))
    size = expected.value.square().mean().sqrt()
    error = (honest.double() - expected.value).square().mean().sqrt() / size
    bound = expected.bound.median() / size

    def fails(t: Any) -> bool:
        return not oracle.compare(t, expected).ok

    return {
        "bound": float(bound),
        "error": float(error),
        "ratio": float(bound / error),
        "undetermined": float(expected.undetermined.double().mean()),
        "alarm": fails(honest),
        "required": oracle.compare(honest, expected).required,
        "zeros fail": fails(torch.zeros_like(honest)),
        "1.1x fails": fails(honest * 1.1),
        "bf16 fails": fails(result(copy.deepcopy(module), narrow=True)),
        "seconds": seconds,
    }


def cases(only: str) -> Iterator[tuple[str, int]]:
    """Every family at every depth."""
    for family, (_, _, depths) in FAMILIES.items():
        if only in ("", family):
            yield from ((family, depth) for depth in depths)


def honest(tally: bounds.Tally, seed: int) -> None:
    """torch's own kernels of every family, its second to fourth depth in turn: float32; float16 and bfloat16 in float32
    and rounded once, and each step in half; outputs and all gradients."""
    for family, (_, _, depths) in FAMILIES.items():
        for depth in depths[1 + seed % 3 : 2 + seed % 3]:
            for dtype in (torch.float32, torch.float16, torch.bfloat16):
                module, inputs = make(family, depth, seed, dtype)
                ways = [("fused", oracle.Accumulation.fp32(), *eager.widened(module, inputs))]
                if dtype in eager.HALF:
                    half = oracle.form_of(eager.HALF[dtype])
                    model = oracle.Accumulation.fp32().split(32, half).stepwise(half)
                    ways.append(("eager", model, module, inputs))
                for way, model, candidate, values in ways:
                    told = oracle.run(module, inputs, model=model, grads=True, seed=seed)
                    upstream = tuple(u.to(values[0].dtype) for u in told.upstream)
                    found = eager.eager(candidate, values, upstream)
                    for part, results, expected in (
                        ("forward", found[0], list(told.outputs)),
                        ("backward", found[1], list(told.grads.values())),
                    ):
                        results = [r.detach().to(e.dtype) for r, e in zip(results, expected, strict=True)]
                        label = f"{family} {depth}/{str(dtype)[6:]}/{way}/{part}"
                        compared = [oracle.compare(r, e) for r, e in zip(results, expected, strict=True)]
                        tally.add(f"{label} seed {seed}", label, compared, expected, results, told.longest, results)


def main() -> None:
    """Print one line a case; ``--json`` also writes the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--grads", action="store_true", help="the input's gradient in place of the output")
    parser.add_argument("--honest", type=int, default=0, help="this many seeds of honest runs in place of the table")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.honest:
        tally = bounds.Tally()
        for seed in range(args.seed, args.seed + args.honest):
            honest(tally, seed)
            bounds.show(f"deep, seeds {args.seed} to {seed}", tally)
        return
    figures = {}
    for family, depth in cases(args.only):
        found = figures[f"{family} {depth}"] = measure(family, depth, args.seed, args.grads)
        verdicts = " ".join(
            f"{k.split()[0]} {'FAILS' if found[k] else 'passes'};" for k in ("zeros fail", "1.1x fails", "bf16 fails")
        )
        print(
            f"{family} {depth}: bound {found['bound']:.1e} / error {found['error']:.1e} = {found['ratio']:.3g}; λ "
            f"{found['required']:.2f}; {verdicts} honest {'ALARM' if found['alarm'] else 'ok'}; "
            f"undetermined {100 * found['undetermined']:.0f} %; {found['seconds']:.2f} s",
            flush=True,
        )
    if args.json:
        args.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
