"""The SSA graph the reader builds: modules, operations, regions, blocks and values.

Operands, uses and nesting are there from the start. Types, attributes and locations are read from the kept text
when first asked for: most operations are never asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kcontract.ir.location import Location
from kcontract.ir.ttgir.attributes import operation_attributes, parse_dictionary
from kcontract.ir.ttgir.results import argument_types, result_types
from kcontract.ir.ttgir.text import unquote
from kcontract.ir.ttgir.types import UNKNOWN, Type

if TYPE_CHECKING:
    from kcontract.ir.ttgir.aliases import Aliases


class Value:
    """One result of an operation, or one argument of a block.

    ``owner`` is the defining ``Operation`` or the ``Block``, ``index`` the position among its results or arguments.
    ``uses`` holds (operation, operand index) pairs in textual order; values that a branch passes on are operands too.
    ``name`` is as printed, such as ``%acc`` or ``%acc#1``.
    """

    __slots__ = ("_type", "index", "name", "owner", "uses")

    def __init__(self, owner: Operation | Block, index: int, name: str) -> None:
        self.owner = owner
        self.index = index
        self.name = name
        self.uses: list[tuple[Operation, int]] = []
        self._type: Type | None = None

    @property
    def type(self) -> Type:
        """The type; kind ``unknown`` where the text of an operation not understood does not say."""
        if self._type is None:
            owner = self.owner
            if isinstance(owner, Operation):
                types, values = result_types(owner), owner.results
            else:
                types, values = argument_types(owner), owner.arguments
            for value, found in zip(values, types, strict=False):
                value._type = found
            for value in values[len(types) :]:
                value._type = UNKNOWN
        return self._type or UNKNOWN

    @property
    def definition(self) -> Operation | None:
        """The operation that makes it, None for a block argument."""
        return self.owner if isinstance(self.owner, Operation) else None

    @property
    def users(self) -> list[Operation]:
        """The operations that use it, in textual order, each once a use."""
        return [operation for operation, _ in self.uses]

    @property
    def block(self) -> Block:
        """The block it belongs to."""
        return self.owner.block if isinstance(self.owner, Operation) else self.owner

    @property
    def location(self) -> Location | None:
        """Place of the defining operation, or of the block argument where one is printed."""
        owner = self.owner
        return owner.location if isinstance(owner, Operation) else owner.argument_location(self.index)

    @property
    def layout(self) -> str | None:
        """The type's encoding with every alias replaced."""
        encoding = self.type.encoding
        return None if encoding is None else self.block.region.module.resolve(encoding)

    def __repr__(self) -> str:
        return f"<{self.name}: {self.type}>"


class Successor(NamedTuple):
    """Where a branch goes, and the operands it hands to that block's arguments."""

    block: Block
    operands: tuple[Value, ...]


class Block:
    """Operations in order, and the arguments they may use. ``label`` is as printed (``bb1``), or empty."""

    __slots__ = ("_argument_texts", "arguments", "label", "line", "operations", "region")

    def __init__(self, region: Region, line: int, label: str = "") -> None:
        self.region = region
        self.label = label
        self.line = line
        self.arguments: list[Value] = []
        self.operations: list[Operation] = []
        self._argument_texts: list[str] = []

    @property
    def parent(self) -> Operation:
        """The operation whose region holds the block."""
        return self.region.parent

    @property
    def terminator(self) -> Operation | None:
        """The last operation."""
        return self.operations[-1] if self.operations else None

    def argument_attributes(self, index: int) -> Mapping[str, str]:
        """Attributes printed with an argument (``tt.divisibility`` of a function's)."""
        return parse_dictionary(self._argument_texts[index]) if index < len(self._argument_texts) else {}

    def argument_location(self, index: int) -> Location | None:
        """Place printed with an argument, else the place of the operation around it."""
        text = self._argument_texts[index] if index < len(self._argument_texts) else ""
        start = text.rfind(" loc(")
        if start < 0:
            return self.parent.location
        return self.region.module.aliases.location(text[start + 5 : text.rfind(")")], self.line)


class Region:
    """Blocks of one region of ``parent``; ``header`` is the text that opened it."""

    __slots__ = ("blocks", "header", "module", "parent")

    def __init__(self, parent: Operation, module: Module, header: str = "") -> None:
        self.parent = parent
        self.module = module
        self.header = header
        self.blocks: list[Block] = []

    @property
    def entry(self) -> Block | None:
        """The first block, None in an empty region."""
        return self.blocks[0] if self.blocks else None


_NO_REGIONS: tuple[Region, ...] = ()


class Operation:
    """One operation.

    ``name`` has its dialect (``tt.load``). ``operands`` are in the order of the operation's definition, which for some
    is not the printed one. ``line`` is 1-based in the text that was read. ``body`` and ``tail`` are the printed text
    after the name and after the last region.
    """

    implicit = False

    __slots__ = ("_attributes", "_loc", "block", "body", "line", "name", "operands", "regions", "results", "tail")

    def __init__(self, name: str, line: int, block: Block, body: str, loc: str) -> None:
        self.name = name
        self.line = line
        self.block = block
        self.body = body
        self.tail: str | None = None
        self.operands: list[Value] = []
        self.results: list[Value] = []
        self.regions: Sequence[Region] = _NO_REGIONS
        self._loc = loc
        self._attributes: Mapping[str, str] | None = None

    @property
    def module(self) -> Module:
        return self.block.region.module

    @property
    def parent(self) -> Operation:
        """The operation around it; of a function the module's."""
        return self.block.region.parent

    @property
    def result(self) -> Value:
        """The first result; raises ``IndexError`` without one."""
        return self.results[0]

    @property
    def attributes(self) -> Mapping[str, str]:
        """Attributes as printed text, also those the pretty form prints without a dictionary (see ``attributes``)."""
        if self._attributes is None:
            self._attributes = operation_attributes(self)
        return self._attributes

    def integer(self, name: str) -> int | None:
        """An integer attribute (``3 : i32`` gives 3, ``true`` 1), None where absent or not one."""
        text = self.attributes.get(name, "").partition(" : ")[0]
        try:
            return {"true": 1, "false": 0}[text] if text in ("true", "false") else int(text)
        except ValueError:
            return None

    def string(self, name: str) -> str | None:
        """A string, symbol or enum attribute without its quotes or ``@``, None where absent."""
        text = self.attributes.get(name)
        return None if text is None else unquote(text.removeprefix("@"))

    @property
    def location(self) -> Location | None:
        """Place in the user's Python with the calls it was inlined through; None where the compiler kept none."""
        return self.module.aliases.location(self._loc, self.line) if self._loc else None

    @property
    def successors(self) -> tuple[Successor, ...]:
        """Where a branch goes; empty for all other operations."""
        return self.module.successors.get(self, ())

    def walk(self) -> Iterator[Operation]:
        """This operation and all inside it, in pre-order."""
        stack: list[Iterator[Operation]] = [iter((self,))]
        while stack:
            operation = next(stack[-1], None)
            if operation is None:
                stack.pop()
                continue
            yield operation
            if operation.regions:
                stack.append(iter([o for region in operation.regions for b in region.blocks for o in b.operations]))

    def ancestors(self) -> Iterator[Operation]:
        """The operations around it, innermost first, the module's last."""
        operation = self
        while operation.name != "builtin.module":
            operation = operation.parent
            yield operation

    def __repr__(self) -> str:
        return f"<{self.name} at line {self.line}>"


class ImplicitOperation(Operation):
    """One the printer leaves out: an empty ``scf.yield``, the holder of a ``ttg.warp_specialize``'s partitions."""

    __slots__ = ()
    implicit = True


class Module:
    """A module's operations and what its aliases stand for.

    ``operation`` is the ``builtin.module`` itself; ``operations`` all others in pre-order.
    """

    def __init__(self, aliases: Aliases) -> None:
        self.aliases = aliases
        self.operations: list[Operation] = []
        self.successors: dict[Operation, tuple[Successor, ...]] = {}
        self.operation = Operation.__new__(Operation)
        region = Region(self.operation, self)
        self.operation.__init__("builtin.module", 1, Block(region, 1), "", "")  # type: ignore[misc]
        self.operation.regions = [region]

    @property
    def attributes(self) -> Mapping[str, str]:
        """The module's attributes as text: ``"ttg.num-warps"``, ``ttg.target``, ``ttg.shared`` …"""
        return self.operation.attributes

    def integer(self, name: str) -> int | None:
        """An integer attribute of the module, such as ``"ttg.num-warps"``."""
        return self.operation.integer(name)

    def string(self, name: str) -> str | None:
        """A string attribute of the module, such as ``ttg.target`` (``cuda:90``)."""
        return self.operation.string(name)

    @property
    def functions(self) -> list[Operation]:
        """Every ``tt.func`` in order, declarations too."""
        return self.find("tt.func", "func.func", "llvm.func")

    def walk(self) -> Iterator[Operation]:
        """Every operation but the module's own, in pre-order."""
        return iter(self.operations)

    def find(self, *names: str) -> list[Operation]:
        """Every operation with one of the names, in order."""
        wanted = frozenset(names)
        return [operation for operation in self.operations if operation.name in wanted]

    @property
    def layouts(self) -> Mapping[str, str]:
        """Layout aliases as printed: ``#blocked`` to ``#ttg.blocked<{…}>``, ``#mma``, ``#shared``, ``#tmem`` …"""
        return self.aliases.layouts

    def resolve(self, text: str) -> str:
        """``text`` (a type, a layout, an attribute) with every alias replaced by what it stands for."""
        return self.aliases.resolve(text)
