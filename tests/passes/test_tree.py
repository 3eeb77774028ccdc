"""The recovered tree against the longest chain of adds in the PTX that the compiler made of it."""

import re

import pytest
import triton
import triton.language as tl
from compiled import compile_kernel, matmul_for
from order_kernels import artifact, split_add

from kcontract.ir.artifact import Artifact
from kcontract.passes.analysis.accumulations import Ledger
from kcontract.passes.analysis.tree import Spread, Trees, spread
from kcontract.passes.base import Facts

PAIR = {"x": "*fp32", "o": "*fp32"}
PAIRWISE = triton.__version__.startswith("3.9")


@triton.jit
def rows(x, o, M: tl.constexpr, N: tl.constexpr, AXIS: tl.constexpr):
    r, c = tl.arange(0, M), tl.arange(0, N)
    total = tl.sum(tl.load(x + r[:, None] * N + c[None, :]), axis=AXIS)
    tl.store(o + (r if AXIS == 1 else c), total)


@triton.jit
def prefix(x, o, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(o + at, tl.cumsum(tl.load(x + at)))


@triton.jit
def product_sum(x, y, o, B: tl.constexpr):
    at = tl.arange(0, B)
    tile = at[:, None] * B + at[None, :]
    tl.store(o + at, tl.sum(tl.dot(tl.load(x + tile), tl.load(y + tile)), 1))


@triton.jit
def looped(x, o, n, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        total += tl.load(x + start + tl.arange(0, BLOCK))
    tl.store(o, tl.sum(total))


@triton.jit
def two_a_trip(x, o, BLOCK: tl.constexpr, TRIPS: tl.constexpr):
    at = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for step in range(TRIPS):
        total = total + tl.load(x + 2 * step * BLOCK + at)
        total = total + tl.load(x + (2 * step + 1) * BLOCK + at)
    tl.store(o + at, total)


@triton.jit
def expression(x, o, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    total = tl.load(x + at)
    for step in tl.static_range(1, 9):
        total += tl.load(x + step * BLOCK + at)
    tl.store(o + at, total)


@triton.jit
def contracted(x, y, o, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(o, tl.sum(tl.load(x + at) * tl.load(y + at)))


def longest_chain(ptx):
    """Float adds on the longest path through registers; all of shared memory is one place."""
    depth = {}
    deepest = 0
    for line in ptx.splitlines():
        match = re.match(r"\s*(?:@\S+ )?([\w.:]+)\s+(.*);", line)
        names = re.findall(r"%\w+", match[2]) if match else []
        if not names:
            continue
        if match[1].startswith("st.shared"):
            depth["shared"] = max(depth.get("shared", 0), *(depth.get(name, 0) for name in names))
            continue
        made = re.findall(r"%\w+", match[2].partition("}")[0]) if match[2].startswith("{") else names[:1]
        source = max((depth.get(name, 0) for name in names[len(made) :]), default=0)
        if match[1].startswith("ld.shared"):
            source = depth.get("shared", 0)
        source += bool(re.match(r"(add|fma)(\.rn)?\.f32", match[1]))
        depth.update(dict.fromkeys(made, source))
        deepest = max(deepest, source)
    return deepest


def trees(compiled):
    facts = Facts(Artifact.from_compiled(compiled.metadata, compiled.asm))
    return [facts.get(Trees).at(row) for row in facts.get(Ledger).sums()]


@pytest.mark.parametrize(
    "m, n, axis, warps",
    [
        (1, 64, 1, 4),
        (1, 128, 1, 4),
        (1, 1024, 1, 4),
        (1, 4096, 1, 4),
        (1, 4096, 1, 1),
        (64, 64, 1, 4),
        (64, 64, 0, 4),
        (256, 128, 0, 8),
    ],
)
@pytest.mark.parametrize("target", [80, 90])
def test_depth_of_a_reduction_is_the_machine_codes(m, n, axis, warps, target):
    compiled = compile_kernel(rows, PAIR, {"M": m, "N": n, "AXIS": axis}, target, num_warps=warps)
    (tree,) = trees(compiled)
    assert tree.depth == longest_chain(compiled.asm["ptx"])


@pytest.mark.parametrize("n, warps", [(128, 4), (256, 4), (4096, 4), (1024, 1), (2048, 8)])
def test_depth_of_a_scan_is_the_machine_codes(n, warps):
    compiled = compile_kernel(prefix, PAIR, {"N": n}, 90, num_warps=warps)
    (tree,) = trees(compiled)
    assert tree.depth == longest_chain(compiled.asm["ptx"])


@pytest.mark.parametrize("target", [80, 90, 100])
def test_a_sum_of_products_reads_the_instructions_layout(target):
    signature = {"x": "*fp16", "y": "*fp16", "o": "*fp32"}
    compiled = compile_kernel(product_sum, signature, {"B": 128}, target)
    tree = trees(compiled)[-1]
    assert next(level.where for level in tree.levels) == "instruction"
    assert tree.levels[0].depth == 128
    above = sum(level.depth for level in tree.levels[1:])
    assert above == (7 if PAIRWISE else {80: 18, 90: 33, 100: 127}[target])
    assert 2 ** sum(level.depth for level in tree.levels[1:] if level.where != "thread") <= 128


def test_a_loop_gives_a_formula_in_its_arguments():
    made = artifact(looped, constants={"BLOCK": 1024})
    facts = Facts(made)
    reduction = made.module.find("tt.reduce")[0]
    tree = facts.get(Trees).of(reduction)
    levels = 10 if PAIRWISE else 14
    assert tree.depth is None
    assert tree.formula == f"ceil(n / 1024) + {levels}"
    assert tree.bound == f"(ceil(n / 1024) + {levels})·2^-24·Σ|x|"


def test_every_add_of_a_trip_counts():
    tree = trees(compile_kernel(two_a_trip, PAIR, {"BLOCK": 128, "TRIPS": 64}, 90))[0]
    assert tree.depth == 128


def test_an_expression_is_as_deep_as_it_is_nested():
    compiled = compile_kernel(expression, PAIR, {"BLOCK": 128}, 90)
    assert trees(compiled)[-1].depth == longest_chain(compiled.asm["ptx"]) == 8


def test_atomics_have_no_tree():
    made = artifact(split_add)
    (row,) = (row for row in Facts(made).get(Ledger).rows if row.kind == "atomic")
    assert Facts(made).get(Trees).at(row) is None


def test_a_loops_step_is_part_of_the_order():
    """A trap: two tile sizes give one depth formula a reader may take for equal, and other bits."""
    orders = set()
    for block in (512, 1024):
        made = artifact(looped, constants={"BLOCK": block})
        orders.add(Facts(made).get(Trees).of(made.module.find("tt.reduce")[0]).order)
    assert len(orders) == 2


@pytest.mark.parametrize("target", [80, 90, 100])
def test_a_matmul_counts_every_product(target):
    (tree,) = trees(matmul_for(target))
    assert tree.formula in ("ceil(K / 64)·64", "ceil((K - 64) / 64)·64 + 64")


def test_warps_change_the_order_and_stages_do_not():
    """A trap of recovering trees: the depth is equal, the pairing is not."""
    few, many = (trees(compile_kernel(rows, PAIR, {"M": 1, "N": 1024, "AXIS": 1}, 90, num_warps=w))[0] for w in (1, 4))
    assert few.order != many.order
    if PAIRWISE:
        assert few.depth == many.depth
    staged = trees(compile_kernel(rows, PAIR, {"M": 1, "N": 1024, "AXIS": 1}, 90, num_warps=4, num_stages=5))[0]
    assert staged.order == many.order


def test_contraction_is_below_this_level():
    """A trap: with and without fusion the TTGIR and the tree are the same, the PTX and so the bits are not."""
    made = [
        compile_kernel(contracted, {"x": "*fp32", "y": "*fp32", "o": "*fp32"}, {"N": 1024}, 90, enable_fp_fusion=on)
        for on in (True, False)
    ]
    first, second = (trees(compiled)[0] for compiled in made)
    assert first == second
    assert "fma.rn.f32" in made[0].asm["ptx"]
    assert "fma.rn.f32" not in made[1].asm["ptx"]


def test_a_version_that_was_not_measured_takes_the_deeper_order():
    compiled = compile_kernel(rows, PAIR, {"M": 1, "N": 1024, "AXIS": 1}, 90, num_warps=4)
    facts = Facts(Artifact.from_compiled({**compiled.metadata._asdict(), "triton_version": "3.5.0"}, compiled.asm))
    tree = facts.get(Trees).of(next(iter(facts.get(Ledger).sums())).operation)
    assert tree.depth == 14


BLOCKED = "#ttg.blocked<{sizePerThread = [1, 4], threadsPerWarp = [2, 16], warpsPerCTA = [4, 1], order = [1, 0]}>"


@pytest.mark.parametrize(
    "layout, shape, axis, wanted",
    [
        (BLOCKED, (64, 128), 1, Spread(8, 16, 1)),
        (BLOCKED, (64, 128), 0, Spread(8, 2, 4)),
        (BLOCKED, (4, 16), 1, Spread(4, 4, 1)),
        (f"#ttg.slice<{{dim = 0, parent = {BLOCKED}}}>", (128,), 0, Spread(8, 16, 1)),
        (
            "#ttg.nvidia_mma<{versionMajor = 2, versionMinor = 0, warpsPerCTA = [2, 2], instrShape = [16, 8]}>",
            (128, 128),
            1,
            Spread(16, 4, 2),
        ),
        (
            "#ttg.nvidia_mma<{versionMajor = 3, versionMinor = 0, warpsPerCTA = [4, 1], instrShape = [16, 128, 16]}>",
            (128, 128),
            0,
            Spread(4, 8, 4),
        ),
        (
            "#ttg.linear<{register = [[0, 1], [0, 2]], lane = [[1, 0], [2, 0], [0, 4]], warp = [[4, 0]], block = []}>",
            (8, 8),
            1,
            Spread(4, 2, 1),
        ),
        ("#ttg.something<{}>", (8, 8), 1, None),
    ],
)
def test_where_elements_are(layout, shape, axis, wanted):
    assert spread(layout, shape, axis) == wanted
