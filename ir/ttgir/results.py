"""Which types an operation's results have, given the types its text prints.

Each operation has its own convention: the printed type is the operand's for comparisons, the pointer's for loads, one
half of ``A -> B`` for conversions, nothing at all for tokens. The table follows the assembly formats of Triton
3.4 - 3.9 and was checked against Triton's own bindings; an operation that is not in it gets a type only where the text
has an arrow, else kind ``unknown``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

from kcontract.ir.ttgir.text import type_end, without_groups
from kcontract.ir.ttgir.types import MAX_CACHED, UNKNOWN, Type, parse_type, parse_types

if TYPE_CHECKING:
    from kcontract.ir.ttgir.graph import Block, Operation

TOKEN = parse_type("!ttg.async.token")
_INDEX = parse_type("index")
_I1 = parse_type("i1")
_I32 = parse_type("i32")

_Types = tuple[Type, ...]
_Rule = Callable[[str, int], _Types]


def result_types(operation: Operation) -> _Types:
    """One type a result, in order."""
    count, name = len(operation.results), operation.name
    if not count:
        return ()
    body, tail = operation.body, operation.tail
    if name in ("scf.for", "scf.if"):
        arrow = body.rfind(" -> ")
        return parse_types(body[arrow + 4 : type_end(body, arrow + 4)]) if arrow >= 0 else ()
    section = (_section(tail) if tail else "") or _section(body)
    return (_types if len(section) < MAX_CACHED else _types.__wrapped__)(name, section, count)


def argument_types(block: Block) -> _Types:
    """One type a block argument, in order."""
    parent = block.region.parent
    if not block.label and parent.name == "scf.for":
        return _loop_types(parent.body)
    if not block.label and parent.name == "scf.while":
        return parse_types(_section(parent.body).rpartition(" -> ")[0])
    texts = block._argument_texts
    return tuple(parse_type(text[: type_end(text, 0)]) for text in texts)


def _loop_types(body: str) -> _Types:
    arrow, colon = body.rfind(" -> "), body.rfind(" : ")
    index = _INDEX if colon < arrow or colon < 0 else parse_type(body[colon + 3 :])
    return (index, *(parse_types(body[arrow + 4 : type_end(body, arrow + 4)]) if arrow >= 0 else ()))


def _section(text: str) -> str:
    """What follows the last colon that stands outside dictionaries and strings; the text from its arrow without one."""
    colon = text.rfind(" : ")
    section = text[colon + 3 :] if colon >= 0 else text
    if colon >= 0 and section.count("{") == section.count("}") and section.count('"') % 2 == 0:
        return section
    text = without_groups(text, "{")
    colon = text.rfind(" : ")
    if colon >= 0:
        return text[colon + 3 :]
    arrow = text.rfind(" -> ")
    return text[arrow:] if arrow >= 0 else ""


@functools.lru_cache(maxsize=8192)
def _types(name: str, section: str, count: int) -> _Types:
    rule = _RULES.get(name)
    if rule is None:
        dialect = name.partition(".")[0]
        rule = (
            _printed if dialect in ("arith", "math") or name in _SAME or name.startswith("nvvm.read.") else _arrow_only
        )
    types = rule(section, count)
    return types if len(types) == count else (types * count if len(types) == 1 else (UNKNOWN,) * count)


def _after_arrow(section: str) -> str | None:
    for arrow in (" -> ", " to "):
        _, found, right = section.rpartition(arrow)
        if found:
            return right
    return None


def _printed(section: str, count: int) -> _Types:
    right = _after_arrow(section)
    return parse_types(section if right is None else right)


def _arrow_only(section: str, count: int) -> _Types:
    right = _after_arrow(section)
    return () if right is None else parse_types(right)


def _first(section: str, count: int) -> _Types:
    return parse_types(section)[:1]


def _last(section: str, count: int) -> _Types:
    return parse_types(section)[-1:]


def _compared(section: str, count: int) -> _Types:
    return tuple(operand.with_element("i1") for operand in parse_types(section)[:1])


def _loaded(section: str, count: int) -> _Types:
    pointer = parse_types(section, "!tt.ptr")[:1]
    return tuple(p.with_element(p.pointee.text) for p in pointer if p.pointee is not None)


def _element(section: str, count: int) -> _Types:
    return tuple(parse_type(operand.element) for operand in parse_types(section)[:1])


def _tokens(section: str, count: int) -> _Types:
    return (TOKEN,) * count


def _i32(section: str, count: int) -> _Types:
    return (_I32,) * count


def _index(section: str, count: int) -> _Types:
    return (_INDEX,) * count


def _then_tokens(section: str, count: int) -> _Types:
    types = parse_types(_after_arrow(section) or "", "!ttg.memdesc")
    return (*types, *(TOKEN,) * (count - len(types)))


def _constant(section: str, count: int) -> _Types:
    return parse_types(section) if section and not section.endswith(("true", "false")) else (_I1,)


def _pointer(section: str, count: int) -> _Types:
    right = _after_arrow(section)
    return parse_types(section if right is None else right, "!tt.ptr")[:1]


def _descriptor(section: str, count: int) -> _Types:
    right = _after_arrow(section)
    return parse_types(section if right is None else right, "!tt.tensordesc")[-1:]


_RULES: dict[str, _Rule] = {
    "arith.addui_extended": _printed,
    "arith.cmpf": _compared,
    "arith.cmpi": _compared,
    "arith.constant": _constant,
    "arith.select": _last,
    "gpu.block_id": _index,
    "gpu.cluster_id": _index,
    "gpu.thread_id": _index,
    "math.fpowi": _first,
    "math.isfinite": _compared,
    "math.isinf": _compared,
    "math.isnan": _compared,
    "math.isnormal": _compared,
    "tt.addptr": _first,
    "tt.advance": _pointer,
    "tt.experimental_make_tensor_descriptor": _descriptor,
    "tt.load": _loaded,
    "tt.make_tensor_descriptor": _descriptor,
    "tt.make_tensor_ptr": _pointer,
    "tt.unsplat": _element,
    "ttg.async_commit_group": _tokens,
    "ttg.async_copy_global_to_local": _tokens,
    "ttg.async_wait": _tokens,
    "ttg.warp_id": _i32,
    "ttng.tc_gen5_mma": _tokens,
    "ttng.tc_gen5_mma_scaled": _tokens,
    "ttng.tmem_alloc": _then_tokens,
    "ttng.tmem_load": _then_tokens,
    "ttng.tmem_store": _tokens,
    "ttng.async_tma_store_wait": _tokens,
}

# Operations that print their result's type, or one type that all results share, after the colon.
_SAME = frozenset(
    (
        "llvm.intr.expect",
        "llvm.mlir.constant",
        "llvm.mlir.poison",
        "llvm.mlir.undef",
        "tt.approx_divf",
        "tt.clampf",
        "tt.get_num_programs",
        "tt.get_program_id",
        "tt.make_range",
        "tt.mulhiui",
        "tt.precise_divf",
        "tt.precise_sqrt",
        "ttg.global_scratch_alloc",
        "ttg.predicate_stage",
        "ttng.warp_group_dot_wait",
        "ub.poison",
    )
)
