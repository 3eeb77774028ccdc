"""Random Triton kernels with a numpy reference: chains of statements on float32, float16, bfloat16, int32.

``make(seed)`` gives the kernel's source and a function of its inputs. Without floating-point contraction every result
is defined to the bit (sums of floats are kept exact by small integers), so simulator, GPU and numpy must agree.
"""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kcontract.dynamic.engines.simulator import values

Array = np.ndarray[Any, np.dtype[Any]]
SIZES = (128, 256, 512)
INPUTS = {"x0": "f", "x1": "f", "h0": "h", "h1": "h", "b0": "b", "b1": "b", "i0": "i", "i1": "i"}
OUTPUTS = 4

_HEAD = """import triton
import triton.language as tl


@triton.jit
def kernel({names}, f_out, i_out, N: tl.constexpr):
    at = tl.arange(0, N)
"""


def round16(x: Array) -> Array:
    with np.errstate(all="ignore"):
        return x.astype("f2").astype("f4")


def round_b(x: Array) -> Array:
    return values.decode(values.bf16(np.ascontiguousarray(x, dtype="f4")), "bf16")


def _fma(a: Array, b: Array, c: Array) -> Array:
    return (a.astype("f8") * b + c).astype("f4")


def _div(a: Array, b: Array) -> Array:
    return (np.trunc(a.astype("f8") / b)).astype("i4")


def _rem(a: Array, b: Array) -> Array:
    return np.fmod(a, b)


def _transpose(a: Array) -> Array:
    n = len(a)
    return np.ascontiguousarray(a.reshape(8, n // 8).T).reshape(n)


@dataclass(frozen=True)
class Operation:
    """``text`` with {0}, {1}, ... for operands of the types in ``takes``; the reference gets float32 or int32."""

    gives: str
    takes: str
    text: str
    reference: Callable[..., Array]


def _same(kind: str, finish: Callable[[Array], Array]) -> list[Operation]:
    """Arithmetic of one float type; ``finish`` rounds to it."""
    return [
        Operation(kind, kind * 2, "{0} + {1}", lambda a, b: finish(a + b)),
        Operation(kind, kind * 2, "{0} - {1}", lambda a, b: finish(a - b)),
        Operation(kind, kind * 2, "{0} * {1}", lambda a, b: finish(a * b)),
        Operation(kind, kind * 2, "tl.maximum({0}, {1})", np.fmax),
        Operation(kind, kind * 2, "tl.minimum({0}, {1})", np.fmin),
        Operation(kind, "m" + kind * 2, "tl.where({0}, {1}, {2})", np.where),
        Operation(kind, kind, "tl.abs({0})", np.abs),
        Operation(kind, kind, "-{0}", np.negative),
        Operation("m", kind * 2, "{0} < {1}", np.less),
        Operation("m", kind * 2, "{0} == {1}", np.equal),
    ]


OPERATIONS: tuple[Operation, ...] = (
    *_same("f", lambda x: x.astype("f4")),
    *_same("h", round16),
    *_same("b", round_b),
    Operation("f", "f", "tl.floor({0})", np.floor),
    Operation("f", "f", "tl.ceil({0})", np.ceil),
    Operation("f", "fff", "tl.fma({0}, {1}, {2})", _fma),
    Operation("f", "ff", "tl.div_rn({0}, {1} * {1} + 1.0)", lambda a, b: (a / (b * b + np.float32(1))).astype("f4")),
    Operation("f", "f", "tl.sqrt_rn(tl.abs({0}))", lambda a: np.sqrt(np.abs(a))),
    Operation("f", "h", "{0}.to(tl.float32)", lambda a: a),
    Operation("f", "b", "{0}.to(tl.float32)", lambda a: a),
    Operation("f", "i", "{0}.to(tl.float32)", lambda a: a.astype("f4")),
    Operation("h", "f", "{0}.to(tl.float16)", round16),
    Operation("b", "f", "{0}.to(tl.bfloat16)", round_b),
    Operation("i", "f", "tl.minimum(tl.maximum({0}, -1e9), 1e9).to(tl.int32)",
              lambda a: np.fmin(np.fmax(a, np.float32(-1e9)), np.float32(1e9)).astype("i4")),
    Operation("i", "ii", "{0} + {1}", np.add),
    Operation("i", "ii", "{0} - {1}", np.subtract),
    Operation("i", "ii", "{0} * {1}", np.multiply),
    Operation("i", "ii", "{0} & {1}", np.bitwise_and),
    Operation("i", "ii", "{0} | {1}", np.bitwise_or),
    Operation("i", "ii", "{0} ^ {1}", np.bitwise_xor),
    Operation("i", "i", "{0} << 3", lambda a: a << 3),
    Operation("i", "i", "{0} >> 5", lambda a: a >> 5),
    Operation("i", "ii", "{0} // (({1} & 1023) + 1)", lambda a, b: _div(a, (b & 1023) + 1)),
    Operation("i", "ii", "{0} % (({1} & 1023) + 1)", lambda a, b: _rem(a, (b & 1023) + 1)),
    Operation("i", "ii", "tl.maximum({0}, {1})", np.maximum),
    Operation("i", "ii", "tl.minimum({0}, {1})", np.minimum),
    Operation("i", "mii", "tl.where({0}, {1}, {2})", np.where),
    Operation("i", "i", "tl.cumsum({0}, 0)", lambda a: np.cumsum(a, dtype="i4")),
    Operation("i", "i", "{0} + tl.sum({0}, 0)", lambda a: a + np.sum(a, dtype="i4")),
    Operation("i", "i", "tl.sort({0})", np.sort),
    Operation("i", "i", "tl.reshape(tl.trans(tl.reshape({0}, (8, N // 8))), (N,))", _transpose),
    Operation("f", "f", "tl.reshape(tl.trans(tl.reshape({0}, (8, N // 8))), (N,))", _transpose),
    Operation("f", "f", "tl.sort({0})", np.sort),
    Operation("f", "f", "tl.minimum({0}, tl.max({0}, 0))", lambda a: np.fmin(a, np.fmax.reduce(a))),
    Operation("f", "i", "tl.sum(({0} & 255).to(tl.float32), 0) + {0}.to(tl.float32)",
              lambda a: (np.float32(int((a & 255).sum())) + a.astype("f4")).astype("f4")),
    Operation("f", "fi", "tl.gather({0}, {1} & (N - 1), 0)", lambda a, j: a[j & (len(a) - 1)]),
    Operation("m", "ii", "{0} < {1}", np.less),
    Operation("m", "mm", "{0} & {1}", np.logical_and),
)  # fmt: skip


@dataclass(frozen=True)
class Program:
    """``source`` is a Python module with the jitted ``kernel``; ``size`` its N; ``warps`` as launched."""

    source: str
    size: int
    warps: int
    steps: tuple[tuple[str, Operation, tuple[str, ...]], ...]
    stored: tuple[tuple[str, str], ...]

    def reference(self, inputs: dict[str, Array]) -> tuple[Array, Array]:
        """float32 and int32 outputs, (OUTPUTS, size) each."""
        known: dict[str, Array] = {}
        for name, kind in INPUTS.items():
            known[name] = (
                values.decode(inputs[name], "bf16")
                if kind == "b"
                else inputs[name].astype("f4" if kind in "fh" else "i4")
            )
        with np.errstate(all="ignore"):
            for name, operation, takes in self.steps:
                known[name] = operation.reference(*(known[t] for t in takes))
        floats, integers = np.zeros((OUTPUTS, self.size), "f4"), np.zeros((OUTPUTS, self.size), "i4")
        for k in range(OUTPUTS):
            floats[k], integers[k] = known[self.stored[k][0]], known[self.stored[k][1]]
        return floats, integers

    def inputs(self, seed: int) -> dict[str, Array]:
        """Random inputs: floats of a few sizes, full-range integers."""
        rng = np.random.default_rng(seed)
        found: dict[str, Array] = {}
        for name, kind in INPUTS.items():
            real = (rng.standard_normal(self.size) * rng.choice([1e-3, 1.0, 8.0], self.size)).astype("f4")
            if kind == "i":
                found[name] = rng.integers(-(2**31), 2**31, self.size).astype("i4") >> rng.integers(
                    0, 28, self.size
                ).astype("i4")
            else:
                found[name] = real if kind == "f" else real.astype("f2") if kind == "h" else values.bf16(real)
        return found


def make(seed: int, length: int = 14) -> Program:
    """The program of a seed."""
    rng = random.Random(seed)
    size = rng.choice(SIZES)
    names: dict[str, list[str]] = {k: [n for n, kind in INPUTS.items() if kind == k] for k in "fhbi"}
    names["m"] = []
    lines = [_HEAD.format(names=", ".join(INPUTS))]
    lines += [f"    {name} = tl.load({name} + at)" for name in INPUTS]
    steps: list[tuple[str, Operation, tuple[str, ...]]] = []
    while len(steps) < length:
        operation = rng.choice(OPERATIONS)
        if any(not names[t] for t in operation.takes):
            continue
        takes = tuple(rng.choice(names[t][-4:]) for t in operation.takes)
        name = f"v{len(steps)}"
        steps.append((name, operation, takes))
        names[operation.gives].append(name)
        lines.append(f"    {name} = {operation.text.format(*takes)}")
    stored = tuple((names["f"][-1 - k % len(names["f"])], names["i"][-1 - k % len(names["i"])]) for k in range(OUTPUTS))
    for k, (f, i) in enumerate(stored):
        lines += [f"    tl.store(f_out + {k} * N + at, {f})", f"    tl.store(i_out + {k} * N + at, {i})"]
    return Program("\n".join(lines) + "\n", size, rng.choice((1, 2, 4)), tuple(steps), stored)


def load(source: str, folder: Path, name: str) -> Any:
    """The jitted ``kernel`` of a source text, which is kept as FOLDER/NAME.py: Triton reads sources from files."""
    path = folder / f"{name}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.kernel
