"""The replay of a 16-bit sum against the compiled kernel itself, run from its PTX by the simulator."""

import sys
from fractions import Fraction
from pathlib import Path

import pytest
from compiled import compile_kernel
from witness import FORMATS, cancelling, non_negative, order_of, replay, rounded, show, swallowed

from kcontract.errors import InputError
from kcontract.ir.artifact import Artifact
from kcontract.passes.base import check

torch = pytest.importorskip("torch", reason="the simulator runs programs on torch tensors")
sys.path.insert(0, str(Path(__file__).parents[1] / "passes"))
import accumulating as kernels  # noqa: E402
import triton  # noqa: E402
import triton.language as tl  # noqa: E402

from kcontract.dynamic.engines.simulator.driver import simulate  # noqa: E402

TYPES = {"bf16": torch.bfloat16, "f16": torch.float16}


@triton.jit
def squares(x, o, N: tl.constexpr):
    value = tl.load(x + tl.arange(0, N))
    tl.store(o, tl.sum(value * value, axis=0))


def launched(x, warps):
    """What the simulated kernel sums ``x`` to, and the order read from that kernel's own TTGIR."""
    out = torch.zeros(1, dtype=x.dtype)
    with simulate("sm_90"):
        made = kernels.reduce_sum[(1,)](x, out, N=len(x), num_warps=warps)
    return Fraction(out.item()), order(Artifact.from_compiled(made.metadata, made.asm))


def compiled(function, element, count, warps):
    signature = {"x": f"*{'fp16' if element == 'f16' else element}", "o": f"*{'fp16' if element == 'f16' else element}"}
    made = compile_kernel(function, signature, {"N": count}, 90, num_warps=warps)
    return Artifact.from_compiled({**made.metadata._asdict(), "triton_version": triton.__version__}, made.asm)


def order(artifact):
    return order_of(artifact.module.find("tt.reduce")[0], triton.__version__)


@pytest.mark.parametrize("element", ["bf16", "f16"])
@pytest.mark.parametrize(("count", "warps"), [(128, 4), (256, 1), (1024, 4), (4096, 2), (4096, 8)])
def test_the_replay_is_what_the_kernel_does(element, count, warps):
    generator = torch.Generator().manual_seed(count)
    x = torch.randn(count, generator=generator).to(TYPES[element])
    given, how = launched(x, warps)
    assert given == replay([Fraction(v) for v in x.tolist()], how, element)
    for terms, _ in (cancelling(how, element), swallowed(how, element)):
        x = torch.tensor([float(term) for term in terms]).to(TYPES[element])
        assert launched(x, warps) == (replay(terms, how, element), how)


def test_terms_of_either_sign_lose_every_digit():
    made = compiled(kernels.reduce_sum, "bf16", 1024, 4)
    (finding,) = check(made, select=["half-precision-accumulator"]).findings
    shown = show(made, finding)
    assert (shown.signed, shown.given, shown.single, shown.exact) == (True, 0, 1022, 1022)


def test_squares_lose_what_the_depth_allows():
    made = compiled(squares, "bf16", 1024, 4)
    (finding,) = check(made, select=["half-precision-accumulator"]).findings
    shown = show(made, finding)
    depth = order(made).depth
    assert (shown.signed, shown.given, shown.single) == (False, 1, shown.exact)
    assert shown.exact == 1 + Fraction(depth, 256)
    assert "added in" in str(shown)


def test_rounding():
    for element, (precision, least, largest) in FORMATS.items():
        one, bit = Fraction(1), Fraction(1, 2 ** (precision - 1))
        assert rounded(one + bit / 2, element) == one
        assert rounded(one + bit * 3 / 2, element) == one + 2 * bit
        assert rounded(-one - bit * 3 / 4, element) == -one - bit
        smallest = Fraction(2) ** (least - precision + 1)
        assert rounded(smallest * 3 / 4, element) == smallest
        assert rounded(smallest / 2, element) == 0
        with pytest.raises(InputError):
            rounded(largest * 2, element)


def test_signs():
    made = compiled(squares, "bf16", 1024, 4)
    (reduction,) = made.module.find("tt.reduce")
    assert non_negative(reduction.operands[0])
    (plain,) = compiled(kernels.reduce_sum, "bf16", 1024, 4).module.find("tt.reduce")
    assert not non_negative(plain.operands[0])
