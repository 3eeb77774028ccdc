"""A PTX module as data: functions, declarations, scopes, instructions, blocks.

Why: instructions are made from the scanner's rows only when asked for, so that a rule which counts opcodes does not
pay for operands. Everything here is read-only; nothing checks whether the PTX would assemble.
"""

from __future__ import annotations

import bisect
import functools
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from kcontract.ir.location import Location
from kcontract.ir.ptx.operands import (
    MAX_OPERANDS,
    Label,
    Opaque,
    Operand,
    Register,
    Special,
    Symbol,
    is_special,
    parse_operands,
)

#: Bytes of the fundamental types; a predicate has none.
TYPE_BYTES: Mapping[str, int] = {
    **{f"{letter}{bits}": bits // 8 for letter in "bus" for bits in (8, 16, 32, 64)},
    "f16": 2,
    "bf16": 2,
    "f16x2": 4,
    "bf16x2": 4,
    "tf32": 4,
    "f32": 4,
    "f64": 8,
    "b128": 16,
    "pred": 0,
}


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a function.

    ``size`` is its bytes in parameter space (arrays: all of them) and ``align`` its alignment there; ``space`` and
    ``pointee_align`` come from ``.ptr``, None where the parameter is not declared a pointer.
    """

    name: str
    type: str
    size: int
    align: int
    space: str | None = None
    pointee_align: int | None = None


@dataclass(frozen=True, slots=True)
class Variable:
    """One ``.shared``, ``.global``, ``.const``, ``.local`` or ``.param`` declaration.

    ``elements`` counts array elements, None for ``name[]`` (sized at launch); ``size`` is bytes, None likewise.
    ``initializer`` is its text. ``scope`` is the index of the scope it stands in, -1 at module level.
    """

    name: str
    space: str
    type: str
    align: int
    elements: int | None
    size: int | None
    linkage: str = ""
    initializer: str = ""
    scope: int = -1
    line: int = 0


@dataclass(frozen=True, slots=True)
class Registers:
    """One ``.reg`` name: ``%r<39>`` declares ``count`` = 39 of ``%r0`` … ``%r38``, a plain name has count None."""

    name: str
    type: str
    count: int | None
    scope: int


@dataclass(frozen=True, slots=True)
class Scope:
    """One ``{ }``. ``parent`` is a scope index, -1 for the function body, which is scope 0."""

    parent: int
    line: int


@dataclass(frozen=True, slots=True)
class LabelSite:
    """Where a label stands: before the instruction ``index`` (may be one past the last)."""

    name: str
    scope: int
    index: int


@dataclass(frozen=True, slots=True, eq=False)
class Instruction:
    """One instruction.

    ``name`` is the opcode with its modifiers (``add.rn.f32``), ``text`` its operands as written. ``index`` counts
    within the function, ``line`` is 1-based in the PTX text, ``scope`` names the braces it stands in, and ``inline``
    the inline-assembly region (counted from 0 within the module), None outside of one.
    """

    name: str
    text: str
    guard: Register | None
    index: int
    line: int
    scope: int
    inline: int | None
    location: Location | None
    function: Function = field(repr=False)

    @property
    def opcode(self) -> str:
        """``add`` of ``add.rn.f32``."""
        return self.name.partition(".")[0]

    @property
    def modifiers(self) -> tuple[str, ...]:
        """``("rn", "f32")`` of ``add.rn.f32``; ``shared::cta`` stays one modifier."""
        return tuple(self.name.split(".")[1:])

    @property
    def operands(self) -> tuple[Operand, ...]:
        """The operands in written order, with names resolved in this instruction's scope."""
        return self.function.operands_of(self)

    @property
    def is_branch(self) -> bool:
        """Whether control may leave to a label of this function."""
        return self.opcode in ("bra", "brx")

    @property
    def ends_block(self) -> bool:
        """Whether the next instruction starts a basic block."""
        return self.opcode in ("bra", "brx", "ret", "exit", "trap")


@dataclass(frozen=True, slots=True)
class Block:
    """A basic block: instructions ``start`` (inclusive) to ``end`` (exclusive) and the blocks that may follow.

    ``exits`` says whether the function may end here. A target that no label names is left out of ``successors``.
    """

    index: int
    start: int
    end: int
    successors: tuple[int, ...]
    exits: bool


_MAX_DIGITS = 8

#: One instruction as scanned: name, operand text, guard text, offset, scope, inline region, location index.
Row = tuple[str, str, str, int, int, int, int]


@dataclass(frozen=True, eq=False)
class Function:
    """One ``.entry`` (``kind`` "entry") or ``.func`` ("func").

    ``directives`` maps the tuning directives between the parameters and the body to their numbers, for example
    ``{"reqntid": (128,), "maxnreg": (168,)}``. ``declared_only`` marks a prototype without a body.
    """

    name: str
    kind: str
    linkage: str
    parameters: tuple[Parameter, ...]
    returns: tuple[Parameter, ...]
    directives: Mapping[str, tuple[int, ...]]
    variables: tuple[Variable, ...]
    registers: tuple[Registers, ...]
    scopes: tuple[Scope, ...]
    labels: tuple[LabelSite, ...]
    branch_lists: Mapping[tuple[int, str], tuple[str, ...]]
    line: int
    declared_only: bool
    rows: tuple[Row, ...] = field(repr=False)
    source: Source = field(repr=False)

    def __len__(self) -> int:
        """The number of instructions."""
        return len(self.rows)

    @functools.cached_property
    def instructions(self) -> tuple[Instruction, ...]:
        """All instructions in written order."""
        source, guards = self.source, dict[str, Register]()
        made: list[Instruction] = []
        for index, (name, text, guard, offset, scope, inline, place) in enumerate(self.rows):
            predicate = None
            if guard:
                key = f"{scope} {guard}"
                predicate = guards.get(key) or guards.setdefault(key, self._guard(guard, scope))
            made.append(
                Instruction(
                    name,
                    text,
                    predicate,
                    index,
                    source.line(offset),
                    scope,
                    None if inline < 0 else inline,
                    None if place < 0 else source.places[place],
                    self,
                )
            )
        return tuple(made)

    @functools.cached_property
    def blocks(self) -> tuple[Block, ...]:
        """The basic blocks in written order, none for an empty body."""
        from kcontract.ir.ptx.blocks import blocks_of

        return blocks_of(self)

    def register(self, name: str, scope: int) -> Registers | None:
        """The declaration that ``name`` means in ``scope``, looked up outwards."""
        # ``%r12`` may be a name of its own, number 12 of ``%r<…>``, or number 2 of ``%r1<…>``.
        digits = min(len(name) - len(name.rstrip("0123456789")), _MAX_DIGITS)
        while scope >= 0:
            single = self._declared.get((scope, name, False))
            if single is not None and single.count is None:
                return single
            for cut in range(len(name) - digits, len(name)):
                many = self._declared.get((scope, name[:cut], True))
                plain = name[cut] != "0" or cut == len(name) - 1
                if many is not None and many.count is not None and plain and int(name[cut:]) < many.count:
                    return many
            scope = self.scopes[scope].parent
        return None

    def resolve_label(self, name: str, scope: int) -> int | None:
        """The instruction index that label ``name`` stands before, seen from ``scope``, looked up outwards."""
        while scope >= 0:
            found = self._sites.get((scope, name))
            if found is not None:
                return found
            scope = self.scopes[scope].parent
        return None

    def branch_list(self, name: str, scope: int) -> tuple[str, ...] | None:
        """The labels of the ``.branchtargets`` called ``name``, seen from ``scope``, looked up outwards."""
        while scope >= 0:
            found = self.branch_lists.get((scope, name))
            if found is not None:
                return found
            scope = self.scopes[scope].parent
        return None

    def targets(self, instruction: Instruction) -> tuple[int, ...]:
        """The instruction indices that a ``bra`` or ``brx.idx`` may go to, in the order of its list."""
        names: list[str] = []
        for operand in instruction.operands:
            if isinstance(operand, (Label, Symbol)):
                names += self.branch_list(operand.name, instruction.scope) or (operand.name,)
        sites = (self.resolve_label(name, instruction.scope) for name in names)
        return tuple(site for site in sites if site is not None)

    def operands_of(self, instruction: Instruction) -> tuple[Operand, ...]:
        """See ``Instruction.operands``; kept here so that equal operands are read once."""
        text, scope = instruction.text, instruction.scope
        atoms = self._atoms[scope]
        made: list[Operand] = []
        for part in text.split(",") if len(text) <= MAX_OPERANDS else (text,):
            atom = atoms.get(part)
            if atom is None and (name := part.strip())[:1] == "%" and name[1:].isalnum():
                atom = atoms[part] = self._lookup(scope, name)
            elif atom is None:
                read = parse_operands(part, functools.partial(self._lookup, scope))
                if len(read) != 1 or isinstance(read[0], Opaque):
                    break
                atom = atoms[part] = read[0]
            made.append(atom)
        else:
            return tuple(made)
        found = self._lists.get((scope, text))
        if found is None:
            found = parse_operands(text, functools.partial(self._resolve, scope))
            self._lists[scope, text] = found
        return found

    @functools.cached_property
    def _atoms(self) -> defaultdict[int, dict[str, Operand]]:
        """By scope, operands by their text where no bracket holds a comma."""
        return defaultdict(dict)

    @functools.cached_property
    def _lists(self) -> dict[tuple[int, str], tuple[Operand, ...]]:
        """By scope and text, the operand lists that ``_atoms`` cannot hold."""
        return {}

    @functools.cached_property
    def _declared(self) -> dict[tuple[int, str, bool], Registers]:
        """By scope, name and whether it is a numbered family: inline assembly declares ``a`` beside ``a<2>``."""
        return {(entry.scope, entry.name, entry.count is not None): entry for entry in self.registers}

    @functools.cached_property
    def _sites(self) -> dict[tuple[int, str], int]:
        return {(site.scope, site.name): site.index for site in self.labels}

    def _resolve(self, scope: int, name: str) -> Operand:
        atoms = self._atoms[scope]
        return atoms.get(name) or atoms.setdefault(name, self._lookup(scope, name))

    def _lookup(self, scope: int, name: str) -> Operand:
        declared = self.register(name, scope)
        if declared is not None:
            return Register(name, declared.type)
        if is_special(name):
            return Special(name)
        stem, dot, member = name.partition(".")
        if dot:
            declared = self.register(stem, scope)
            return Register(stem, declared.type if declared else None, member)
        if name.startswith("%"):
            return Register(name)
        if self.branch_list(name, scope) or self.resolve_label(name, scope) is not None:
            return Label(name)
        return Symbol(name)

    def _guard(self, text: str, scope: int) -> Register:
        name = text.lstrip("!").strip()
        declared = self.register(name, scope)
        return Register(name, declared.type if declared else None, None, text.startswith("!"))


@dataclass(frozen=True, eq=False)
class Source:
    """The text and what all functions share: line starts and locations."""

    text: str
    places: list[Location] = field(default_factory=list)

    @functools.cached_property
    def _newlines(self) -> list[int]:
        at, found = self.text.find("\n"), []
        while at >= 0:
            found.append(at)
            at = self.text.find("\n", at + 1)
        return found

    def line(self, offset: int) -> int:
        """The 1-based line of a character offset."""
        return bisect.bisect_left(self._newlines, offset) + 1


@dataclass(frozen=True, eq=False)
class Program:
    """One PTX module.

    ``target`` is as written (``sm_90a``); ``options`` are the further words of ``.target``; ``files`` maps the
    numbers of ``.file`` to paths; ``variables`` are those of module level.
    """

    version: tuple[int, int]
    target: str
    options: tuple[str, ...]
    address_size: int | None
    files: Mapping[int, str]
    variables: tuple[Variable, ...]
    functions: tuple[Function, ...]

    @property
    def entry(self) -> Function | None:
        """The first kernel with a body; Triton's modules have one."""
        return next((f for f in self.functions if f.kind == "entry" and not f.declared_only), None)

    @property
    def instructions(self) -> Iterator[Instruction]:
        """The instructions of all functions, in written order."""
        for function in self.functions:
            yield from function.instructions

    def opcodes(self) -> Counter[str]:
        """How often each instruction occurs, by opcode with modifiers; makes no ``Instruction``."""
        return Counter(row[0] for function in self.functions for row in function.rows)
