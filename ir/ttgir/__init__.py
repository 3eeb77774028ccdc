"""The TTGIR reader: from the text Triton 3.4 - 3.9 prints (``.ttgir``, ``.ttir``) to an SSA graph.

    module = parse(text)                    # InputError, with the line, for what is no module or is cut off
    module.integer("ttg.num-warps"), module.string("ttg.target"), module.attributes, module.layouts
    for op in module.walk(): …              # pre-order; module.find("tt.dot", "tt.load"), module.functions
    op.name, op.operands, op.results, op.regions[0].blocks[0].operations, op.parent, op.line
    op.attributes["inputPrecision"], op.integer("axis"), op.string("callee")        # read when asked for
    op.location                             # Location with the inlined calls, or None
    op.successors                           # of cf.br and cf.cond_br: (block, operands) each
    value.type, value.definition, value.owner, value.index, value.uses, value.name
    value.type.kind, .element, .shape, .encoding, .memory_space, .mutable, .bits, .pointee
    value.layout, module.resolve("#blocked")  # aliases replaced

The values that ``ttg.warp_specialize`` captures are its operands, as printed; the arguments of each partition's block
stand for them in order (Triton 3.9 itself keeps them on the operation that holds the partitions).

Operations and types it does not know are opaque, never an error. It checks no semantics: Triton's own parser does.
Imports neither triton nor lark nor numpy.
"""

from __future__ import annotations

from kcontract.ir.ttgir.graph import Block, ImplicitOperation, Module, Operation, Region, Successor, Value
from kcontract.ir.ttgir.reader import Reader
from kcontract.ir.ttgir.types import Type, parse_type

__all__ = [
    "Block",
    "ImplicitOperation",
    "Module",
    "Operation",
    "Region",
    "Successor",
    "Type",
    "Value",
    "parse",
    "parse_type",
]


def parse(text: str) -> Module:
    """Read one module. Raises ``InputError`` for what is no module, is cut off, or has over 8 million characters."""
    return Reader(text).read()
