"""Compares the reader with Triton's own parser, operation by operation, in one walk.

Compared: names in walk order, operand identities, result types, number of regions, blocks and their arguments' types,
the places of results, and integer, boolean, string and symbol attributes where the bindings give them.

Known differences of printing, left out: Triton 3.9 keeps the captures of ``ttg.warp_specialize`` on the operation that
holds its partitions and prints them as 3.6 does; the reader keeps them where they are printed. Text without places is
given its own lines by Triton's parser; the reader gives none.
"""

from __future__ import annotations

import re

from triton._C.libtriton import ir, nvidia

from kcontract.ir.ttgir import Module, Operation, parse

CAPTURES = ("ttg.warp_specialize", "ttg.warp_specialize.partitions")
_INTEGER = re.compile(r"-?\d+(?: : i(?:8|16|32|64))?$|(true|false)$")


def post_order(top: Operation) -> list[Operation]:
    """All operations in the order Triton's ``walk`` gives them."""
    found: list[Operation] = []
    stack = [(top, iter(_children(top)))]
    while stack:
        operation, children = stack[-1]
        child = next(children, None)
        if child is None:
            found.append(operation)
            stack.pop()
        else:
            stack.append((child, iter(_children(child))))
    return found


def _children(operation: Operation) -> list[Operation]:
    return [child for region in operation.regions for block in region.blocks for child in block.operations]


def differences(path) -> tuple[int, list[str]]:
    """Operations compared, and every difference as a sentence."""
    text = path.read_text()
    module = parse(text)
    context = ir.context()
    ir.load_dialects(context)
    nvidia.load_dialects(context)
    theirs = ir.parse_mlir_module(str(path), context)
    comparison = _Comparison(module, places="loc(" in text)
    theirs.walk(comparison.visit)
    comparison.finish()
    return comparison.position, [f"{path.name}: {difference}" for difference in comparison.found]


class _Comparison:
    def __init__(self, module: Module, places: bool) -> None:
        self.module = module
        self.places = places
        self.mine = post_order(module.operation)
        self.position = 0
        self.found: list[str] = []
        self.values: dict[int, object] = {}
        self.blocks: dict[int, object] = {}
        self.uses: list[tuple[Operation, list[int]]] = []

    def visit(self, theirs) -> None:
        position, self.position = self.position, self.position + 1
        if position >= len(self.mine):
            return
        mine = self.mine[position]
        if self._differ(mine, "name", mine.name, theirs.get_name()):
            self.mine = self.mine[:position]
            return
        results = [theirs.get_result(i) for i in range(theirs.get_num_results())]
        self._differ(mine, "regions", len(mine.regions), theirs.get_num_regions())
        types = [self.module.resolve(value.type.text) for value in mine.results]
        self._differ(mine, "result types", types, [str(value.get_type()) for value in results])
        for value, result in zip(mine.results, results, strict=False):
            self.values[result.id()] = value
            if self.places:
                place = self.module.aliases.location(str(result.get_loc())[4:-1], mine.line)
                self._differ(mine, "place", value.location, place)
        self.uses.append((mine, [theirs.get_operand(i).id() for i in range(theirs.get_num_operands())]))
        self._attributes(mine, theirs)
        block = theirs.get_block()
        if block is not None and block.id() not in self.blocks:
            self.blocks[block.id()] = mine.block
            arguments = [block.arg(i) for i in range(block.get_num_arguments())]
            types = [self.module.resolve(value.type.text) for value in mine.block.arguments]
            self._differ(mine.parent, "argument types", types, [str(value.get_type()) for value in arguments])
            self.values.update(zip((value.id() for value in arguments), mine.block.arguments, strict=False))
        elif block is not None:
            self._differ(mine, "block", self.blocks[block.id()], mine.block)

    def finish(self) -> None:
        """Operands may be defined after their use in the walk, so they are compared at its end."""
        if self.position != len(self.mine):
            self.found.append(f"{self.position} operations, read {len(self.mine)}")
        for mine, operands in self.uses:
            if mine.name not in CAPTURES:
                self._differ(mine, "operands", mine.operands, [self.values.get(key) for key in operands])

    def _attributes(self, mine: Operation, theirs) -> None:
        for name, text in mine.attributes.items():
            if match := _INTEGER.match(text):
                kind = "get_bool_attr" if match[1] else "get_int_attr"
                if hasattr(theirs, kind) and mine.name != "arith.constant":
                    self._differ(mine, name, mine.integer(name), getattr(theirs, kind)(name))
            elif text.startswith(('"', "@")):
                kind = "get_str_attr" if text[0] == '"' else "get_flat_symbol_ref_attr"
                self._differ(mine, name, mine.string(name), getattr(theirs, kind)(name))

    def _differ(self, mine: Operation, what: str, read: object, wanted: object) -> bool:
        if read == wanted:
            return False
        self.found.append(f"line {mine.line}, {mine.name}: {what} {read!r}, Triton has {wanted!r}")
        return True
