"""Basic blocks of a PTX function.

Why: dominance, loops and the simulator's schedule all start from them. Calls do not end a block; a branch whose
label is nowhere in scope has no successor for it.
"""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING

from kcontract.ir.ptx.program import Block

if TYPE_CHECKING:
    from kcontract.ir.ptx.program import Function


def blocks_of(function: Function) -> tuple[Block, ...]:
    """The blocks of ``function`` in written order."""
    count = len(function.instructions)
    if not count:
        return ()
    leaders = {0} | {site.index for site in function.labels}
    leaders |= {instruction.index + 1 for instruction in function.instructions if instruction.ends_block}
    starts = sorted(leader for leader in leaders if leader < count)
    made = []
    for index, start in enumerate(starts):
        end = starts[index + 1] if index + 1 < len(starts) else count
        last = function.instructions[end - 1]
        jumps = last.is_branch
        falls = not last.ends_block or last.guard is not None
        followers = [bisect.bisect_left(starts, site) for site in function.targets(last)] if jumps else []
        beyond = [block for block in followers if block >= len(starts)]
        if falls:
            followers.append(index + 1)
        successors = tuple(dict.fromkeys(block for block in followers if block < len(starts)))
        leaves = (last.ends_block and not jumps) or bool(beyond) or (falls and index + 1 == len(starts))
        made.append(Block(index, start, end, successors, leaves))
    return tuple(made)
