"""Answers about writers that meet, against every pair of writers of small grids."""

import itertools
import random

import pytest

from kcontract.ir.launch import Launch
from kcontract.ir.loaders import load_text
from kcontract.passes.analysis.meeting import Meeting, Meetings
from kcontract.passes.base import Facts

KERNEL = """
#blocked = #ttg.blocked<{{sizePerThread = [1], threadsPerWarp = [32], warpsPerCTA = [1], order = [0]}}>
module attributes {{"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 1 : i32, ttg.target = "cuda:90"}} {{
  tt.func public @adds(%o: !tt.ptr<f32>, %v: tensor<8xf32, #blocked>) {{
    %x = tt.get_program_id x : i32
    %y = tt.get_program_id y : i32
    %lane = tt.make_range {{end = 8 : i32, start = 0 : i32}} : tensor<8xi32, #blocked>
    %ca = arith.constant {a} : i32
    %cb = arith.constant {b} : i32
    %cl = arith.constant dense<{c}> : tensor<8xi32, #blocked>
    %cd = arith.constant {d} : i32
    %ce = arith.constant {e} : i32
    %cf = arith.constant {f} : i32
    %limit = arith.constant dense<{limit}> : tensor<8xi32, #blocked>
    %q = arith.divsi %x, %cd : i32
    %r = arith.remsi %x, %cd : i32
    %1 = arith.muli %q, %ca : i32
    %2 = arith.muli %r, %cb : i32
    %3 = arith.muli %y, %ce : i32
    %4 = arith.addi %1, %2 : i32
    %5 = arith.addi %4, %3 : i32
    %6 = arith.muli %lane, %cl : tensor<8xi32, #blocked>
    %7 = tt.splat %5 : i32 -> tensor<8xi32, #blocked>
    %8 = arith.addi %7, %6 : tensor<8xi32, #blocked>
    %m = arith.cmpi slt, %lane, %limit : tensor<8xi32, #blocked>
    %9 = tt.splat %o : !tt.ptr<f32> -> tensor<8x!tt.ptr<f32>, #blocked>
    %p = tt.addptr %9, %8 : tensor<8x!tt.ptr<f32>, #blocked>, tensor<8xi32, #blocked>
    %g = arith.cmpi eq, %y, %cf : i32
    %gs = tt.splat %g : i1 -> tensor<8xi1, #blocked>
    %all = arith.andi %m, %gs : tensor<8xi1, #blocked>
    %old = tt.atomic_rmw fadd, relaxed, gpu, %p, %v, {mask} : ({types}) -> tensor<8xf32, #blocked>
    tt.return
  }}
}}
"""
TYPES = "tensor<8x!tt.ptr<f32>, #blocked>, tensor<8xf32, #blocked>, tensor<8xi1, #blocked>"


def case(seed):
    """A kernel, its grid, and whether two programs or lanes of it meet."""
    chance = random.Random(seed)
    pick = lambda *values: chance.choice(values)  # noqa: E731
    n = {
        "a": pick(0, 1, 8, 16, 24, 32, 64),
        "b": pick(0, 1, 4, 8, 16),
        "c": pick(0, 1, 1, 1, 2, 3),
        "d": pick(1, 2, 4),
        "e": pick(0, 8, 64, 128, 7),
        "f": pick(0, 1),
        "limit": pick(8, 4, 1),
        "mask": pick("%m", "%all"),
    }
    grid = (pick(1, 4, 8), pick(1, 2), 1)
    seen = {}
    meet = False
    for x, y, lane in itertools.product(range(grid[0]), range(grid[1]), range(n["limit"])):
        if n["mask"] == "%all" and y != n["f"]:
            continue
        at = (x // n["d"]) * n["a"] + (x % n["d"]) * n["b"] + y * n["e"] + lane * n["c"]
        meet |= at in seen
        seen[at] = x, y, lane
    return KERNEL.format(**n, types=TYPES), grid, meet


@pytest.mark.parametrize("part", range(8))
def test_answers_agree_with_all_pairs(part):
    decided = 0
    for seed in range(part * 40, part * 40 + 40):
        text, grid, meet = case(seed)
        made = load_text(text, "ttgir", f"case{seed}.ttgir")
        facts = Facts(made, launches=(Launch(grid=grid),), deep=True)
        (operation,) = made.module.find("tt.atomic_rmw")
        answer = facts.get(Meetings).at(operation, (operation.operands[0],), (), operation.operands[2])
        if answer.meeting is not Meeting.UNKNOWN:
            assert (answer.meeting is Meeting.MEET) == meet, (seed, answer, grid)
            decided += 1
        elif not meet:
            assert "not decided" in answer.reason or "nothing" in answer.reason
    assert decided >= 36
