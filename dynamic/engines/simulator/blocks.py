"""Basic blocks as the simulator schedules them: split also where threads may have to wait."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kcontract.ir.ptx.program import Function

#: Opcodes (with the modifiers that matter) before which a block is split because threads may wait there.
WAITS = re.compile(r"(bar|barrier)\b|mbarrier\.(try_wait|test_wait)\b|bar\.warp|griddepcontrol\.wait|tcgen05\.alloc\b")


@dataclass
class BlockCode:
    """``first`` and ``last`` (exclusive) index the function's instructions; ``live`` the registers live at its "
    "start."""

    first: int
    last: int
    live: tuple[int, ...] = ()


def split(function: Function) -> list[BlockCode]:
    """Basic blocks, split further before each instruction at which threads may wait."""
    blocks: list[BlockCode] = []
    for b in function.blocks:
        start = b.start
        for i in range(b.start, b.end):
            if i > start and WAITS.match(function.instructions[i].name):
                blocks.append(BlockCode(start, i))
                start = i
            name = function.instructions[i].name
            if i + 1 < b.end and name.startswith(("bar.", "barrier.", "bar.sync")):
                blocks.append(BlockCode(start, i + 1))
                start = i + 1
        if start < b.end:
            blocks.append(BlockCode(start, b.end))
    end = len(function.instructions)
    return [*blocks, BlockCode(end, end)]
