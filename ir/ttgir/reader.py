"""Reads MLIR text as Triton prints it, line by line, into the graph of ``graph``.

One pass finds operations, operands, scopes and regions; what is inside types, dictionaries and locations is kept as
text. Knows the few operations whose header names block arguments (loops, functions, ``ttg.warp_specialize``) or whose
operands are printed in another order; all others need no entry here, known or not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kcontract.errors import InputError
from kcontract.ir.ttgir.aliases import Aliases
from kcontract.ir.ttgir.graph import Block, ImplicitOperation, Module, Operation, Region, Successor, Value
from kcontract.ir.ttgir.operands import REORDERED
from kcontract.ir.ttgir.text import (
    CONTINUES,
    STRING,
    USE,
    balanced_end,
    cut_location,
    join_lines,
    plain,
    split_top,
    without_comment,
)

MAX_TEXT = 8 << 20
"""Characters; the largest module of a library kernel seen is 256 kB."""
MAX_LINE = 1 << 20
MAX_CONTINUED = 1 << 14
"""Characters of an operation whose types follow on lines of their own."""
MAX_OPERATIONS = 60_000
MAX_DEPTH = 1_000
MAX_VALUES = 200_000
"""Operands, results, block arguments, blocks and regions in all."""
MAX_RESULTS = 4_096

_NAME = re.compile(r'"?([A-Za-z_][\w$]*(?:\.[\w$]+)+|module\b|return\b)"?').match
_SHORT = {"module": "builtin.module", "return": "func.return"}
_REGION_WORD = re.compile(r"(default|partition\d+|case -?\d+)\b\s*").match
_LABEL = re.compile(r"\^([\w$.-]+)").match
_SUCCESSOR = re.compile(r"\^([\w$.-]+)")
_RESULT = re.compile(r"(%[\w$.-]+)(?::(\d+))?$").match
_ARGUMENT = re.compile(r"(%[\w$.-]+): (.*)", re.DOTALL).match
_FUNCTIONS = ("tt.func", "func.func", "llvm.func")
_HOLDER = "ttg.warp_specialize.partitions"
_KNOWN = ("tt.", "ttg.", "ttng.", "scf.", "arith.", "math.", "cf.", "func.")


class _Frame:
    """An open region. ``names``: what it has defined, or None where it is isolated and ``outer`` is the scope left."""

    __slots__ = ("block", "labels", "line", "names", "operation", "outer", "pending", "region", "targets")

    def __init__(self, operation: Operation, region: Region, line: int) -> None:
        self.operation = operation
        self.region = region
        self.line = line
        self.block = Block(region, line)
        region.blocks.append(self.block)
        self.names: list[str] | None = []
        self.outer: dict[str, Value] = {}
        self.pending: dict[str, Value] = {}
        self.labels: dict[str, Block] = {}
        self.targets: list[tuple[Operation, str]] = []


class Reader:
    """One reading of one text; ``read`` is called once."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._alias_lines: list[tuple[int, str]] = []
        self._module = Module(Aliases(self._alias_lines))
        self._scope: dict[str, Value] = {}
        self._pending: dict[str, Value] = {}
        self._values = 0
        self._stack: list[_Frame] = []
        self._seen_module = False

    def read(self) -> Module:
        """Raises ``InputError``, with the line, for what is no MLIR text or is cut off."""
        text, module = self._text, self._module
        if len(text) > MAX_TEXT:
            raise InputError(f"the text has {len(text):,} characters and at most {MAX_TEXT:,} are read")
        if "\0" in text:
            raise InputError("this is binary data, not the text of a module")
        top = _Frame(module.operation, module.operation.regions[0], 1)
        module.operation.regions[0].blocks[:] = [top.block]
        module.operation.block = top.block
        self._stack.append(top)
        self._lines(enumerate(text.split("\n"), 1))
        if len(self._stack) > 1:
            frame = self._stack[-1]
            raise InputError(
                f"the text ends inside {frame.operation.name[:60]}, opened on line {frame.line}", line=frame.line
            )
        if not module.operations and not self._seen_module:
            raise InputError("no operation found: this is not the text of a module")
        self._check_defined(self._pending)
        return module

    def _lines(self, numbered: Iterator[tuple[int, str]]) -> None:
        stack, operations = self._stack, self._module.operations
        find_uses, mask = USE.findall, STRING.sub
        for number, line in numbered:
            line = line.strip()
            if not line:
                continue
            if len(line) > MAX_LINE:
                raise InputError(f"a line of {len(line):,} characters; at most {MAX_LINE:,} are read", line=number)
            first = line[0]
            start, equals = 0, -1
            if first == "%":
                equals = line.find(" = ")
                start = equals + 3
            elif first == "#":
                self._alias_lines.append((number, line))
                if len(self._alias_lines) > MAX_OPERATIONS:
                    raise InputError(f"more than {MAX_OPERATIONS:,} aliases", line=number)
                continue
            if "//" in line:
                line = without_comment(line)
                if not line:
                    continue
            if line[-1] not in "){" and line.endswith(CONTINUES) and first != "^":
                line = join_lines(line, numbered)
            match = _NAME(line, start)
            if match is None:
                self._structure(line, number)
                continue
            name = match[1]
            end, loc = len(line), ""
            opens = line[-1] == "{"
            if opens:
                end -= 2 if line[-2] == "(" else 1
            elif line[-1] == ")":
                end, loc = cut_location(line)
            body = line[match.end() : end]
            frame = stack[-1]
            if name in _SHORT:
                name = _SHORT[name]
                if name == "builtin.module":
                    self._open_module(body, loc, number, opens)
                    continue
            block = frame.block
            operation = Operation(name, number, block, body, loc)
            block.operations.append(operation)
            operations.append(operation)
            names = find_uses(body if '"' not in body else mask('""', body))
            if names and not opens and name not in _FUNCTIONS:
                if name in REORDERED:
                    names = REORDERED[name](names, body)
                scope, operands = self._scope, operation.operands
                for index, used in enumerate(names):
                    value = scope.get(used)
                    if value is None:
                        value = self._forward(used, operation)
                    value.uses.append((operation, index))
                    operands.append(value)
                self._count(len(names), number)
            if equals > 0:
                self._define(operation, line[:equals], number)
            elif "^" in body:
                frame.targets.append((operation, plain(body)))
            if opens:
                self._open(operation, names, number)
            elif name in _FUNCTIONS:
                operation.regions = (Region(operation, self._module),)
            if len(operations) > MAX_OPERATIONS:
                raise InputError(f"more than {MAX_OPERATIONS:,} operations", line=number)

    def _count(self, more: int, number: int) -> None:
        self._values += more
        if self._values > MAX_VALUES:
            raise InputError(f"more than {MAX_VALUES:,} values", line=number)

    def _define(self, operation: Operation, text: str, number: int) -> None:
        """Enter the results that ``text`` names."""
        if ":" not in text and "," not in text and " " not in text:
            operation.results.append(self._new_value(operation, 0, text, number))
            return
        names: list[str] = []
        for part in text.split(", "):
            match = _RESULT(part)
            if match is None:
                raise InputError(f"{part[:40]!r} is no name of a result", line=number)
            count = int(match[2][:6]) if match[2] else 1
            if count > MAX_RESULTS:
                raise InputError(f"an operation with more than {MAX_RESULTS:,} results", line=number)
            names.extend(f"{match[1]}#{index}" for index in range(count)) if match[2] else names.append(part)
        self._count(len(names), number)
        for index, name in enumerate(names):
            operation.results.append(self._new_value(operation, index, name, number))

    def _new_value(self, owner: Operation | Block, index: int, name: str, number: int) -> Value:
        scope = self._scope
        if name in scope:
            raise InputError(f"value {name[:60]} is defined twice", line=number)
        value = self._pending.pop(name, None) if self._pending else None
        if value is None:
            value = Value(owner, index, name)
        else:
            value.owner, value.index = owner, index
        scope[name] = value
        names = self._stack[-1].names
        if names is not None:
            names.append(name)
        return value

    def _forward(self, name: str, operation: Operation) -> Value:
        """A value used before its definition, which takes it over; ``%a`` and ``%a#0`` are the same."""
        value = self._scope.get(name + "#0") or self._scope.get(name.removesuffix("#0")) or self._pending.get(name)
        if value is None:
            value = self._pending[name] = Value(operation, 0, name)
        return value

    def _use(self, operation: Operation, names: list[str]) -> None:
        for index, name in enumerate(names):
            value = self._scope.get(name) or self._forward(name, operation)
            value.uses.append((operation, index))
            operation.operands.append(value)

    def _open(self, operation: Operation, names: list[str], number: int) -> None:
        """An operation whose line ends with ``{``: tell operands from block arguments, and enter its first region."""
        name, body = operation.name, operation.body
        arguments: list[str] = []
        if name in _FUNCTIONS:
            start = plain(body).find("(")
            self._enter(operation, number, body, isolated=True)
            self._arguments(body[start + 1 : balanced_end(body, start) - 1] if start >= 0 else "", number)
            return
        if name == "scf.for":
            arguments, names = [*names[:1], *names[4::2]], [*names[1:4], *names[5::2]]
        elif name == "scf.while":
            arguments, names = names[0::2], names[1::2]
        elif not name.startswith(_KNOWN):
            known = self._scope
            arguments = [used for used in names if used not in known]
            names = [used for used in names if used in known]
        self._count(len(names), number)
        self._use(operation, names)
        self._enter(operation, number, body)
        self._name_arguments(arguments, number)

    def _enter(self, operation: Operation, number: int, header: str, *, isolated: bool = False) -> None:
        if len(self._stack) > MAX_DEPTH:
            raise InputError(f"regions nested deeper than {MAX_DEPTH:,}", line=number)
        self._count(1, number)
        region = Region(operation, self._module, header)
        if isinstance(operation.regions, list):
            operation.regions.append(region)
        else:
            operation.regions = [region]
        frame = _Frame(operation, region, number)
        if isolated:
            frame.names, frame.outer, frame.pending = None, self._scope, self._pending
            self._scope, self._pending = {}, {}
        self._stack.append(frame)

    def _name_arguments(self, names: list[str], number: int) -> None:
        block = self._stack[-1].block
        self._count(len(names), number)
        for name in names:
            block.arguments.append(self._new_value(block, len(block.arguments), name, number))

    def _arguments(self, text: str, number: int) -> None:
        """Block arguments ``%a: type {attributes} loc(…), …``; the rest of each is kept for when it is asked for."""
        names = []
        for part in split_top(text):
            match = _ARGUMENT(part)
            if match is None:
                raise InputError(f"{part[:40]!r} is no argument of a block", line=number)
            names.append(match[1])
            self._stack[-1].block._argument_texts.append(match[2])
        self._name_arguments(names, number)

    def _open_module(self, body: str, loc: str, number: int, opens: bool) -> None:
        if self._seen_module or len(self._stack) > 1 or not opens:
            raise InputError("a second module, or one without operations; read one at a time", line=number)
        self._seen_module = True
        operation = self._module.operation
        operation.line, operation.body, operation._loc = number, body, loc
        frame = _Frame(operation, operation.regions[0], number)
        operation.regions[0].blocks[:] = [frame.block]
        self._stack.append(frame)

    def _structure(self, line: str, number: int) -> None:
        """A line that is no operation: the end of a region, a label, the next region, or the rest of an operation."""
        frame = self._stack[-1]
        if line[0] == "}":
            self._close(line, number)
        elif line[0] == "^":
            self._label(line, number)
        elif line.startswith((": ", "-> ")) and frame.block.operations:
            operation = frame.block.operations[-1]
            if len(operation.body) > MAX_CONTINUED:
                raise InputError(f"an operation of more than {MAX_CONTINUED:,} characters", line=number)
            end, operation._loc = cut_location(line) if line[-1] == ")" else (len(line), "")
            operation.body += " " + line[:end]
        elif line[-1] == "{" and (match := _REGION_WORD(line)) and frame.block.operations:
            operation = frame.block.operations[-1]
            partition = match[1].startswith("partition") and operation.name == "ttg.warp_specialize"
            if partition:
                operation = self._holder(operation, number)
            self._enter(operation, number, line[:-1], isolated=partition)
            if line[match.end()] == "(":
                self._arguments(line[match.end() + 1 : balanced_end(line, match.end()) - 1], number)
        else:
            raise InputError(f"{line[:60]!r} is no line of a module", line=number)

    def _holder(self, operation: Operation, number: int) -> Operation:
        """The operation that holds the partitions, in the second region of ``ttg.warp_specialize``."""
        if len(operation.regions) < 2:
            self._enter(operation, number, "")
            block = self._stack.pop().block
            holder = ImplicitOperation(_HOLDER, number, block, "", "")
            block.operations.append(holder)
            self._module.operations.append(holder)
        second = [held for region in operation.regions[1:2] for block in region.blocks for held in block.operations]
        if not second:
            raise InputError("partitions of warps stand where their default does not precede them", line=number)
        return second[0]

    def _label(self, line: str, number: int) -> None:
        match = _LABEL(line)
        frame = self._stack[-1]
        if match is None or match[1] in frame.labels:
            raise InputError(f"{line[:60]!r} is no new label", line=number)
        block = frame.block
        if block.operations or block.arguments or block.label:
            self._count(1, number)
            frame.block = block = Block(frame.region, number)
            frame.region.blocks.append(block)
        block.label = match[1]
        frame.labels[match[1]] = block
        if line.startswith("(", match.end()):
            self._arguments(line[match.end() + 1 : balanced_end(line, match.end()) - 1], number)

    def _close(self, line: str, number: int) -> None:
        if len(self._stack) < 2:
            raise InputError("a '}' that closes nothing", line=number)
        frame = self._stack.pop()
        operation, block = frame.operation, frame.block
        if operation.name in ("scf.for", "scf.if") and (
            not block.operations or block.operations[-1].name != "scf.yield"
        ):
            implicit = ImplicitOperation("scf.yield", number, block, "", "")
            block.operations.append(implicit)
            self._module.operations.append(implicit)
        for branch, body in frame.targets:
            self._module.successors[branch] = tuple(self._successors(branch, body, frame))
        self._leave(frame)
        if line[-1] == "{":
            self._enter(operation, number, line[1:-1])
            return
        end, loc = cut_location(line) if line[-1] == ")" else (len(line), "")
        operation._loc = loc or operation._loc
        tail = line[1:end].removeprefix(")")
        if operation.name == _HOLDER:
            operation = operation.parent
            operation._loc = loc
        operation.tail = tail
        if operation.name == "scf.if" and len(operation.regions) == 1:
            operation.regions = [*operation.regions, Region(operation, self._module)]
        elif operation.name == "scf.index_switch" and frame.region.header.startswith("default"):
            operation.regions = [operation.regions[-1], *operation.regions[:-1]]

    def _leave(self, frame: _Frame) -> None:
        """Forget what the region defined."""
        if frame.names is None:
            self._check_defined(self._pending)
            self._scope, self._pending = frame.outer, frame.pending
        else:
            for name in frame.names:
                del self._scope[name]

    def _successors(self, branch: Operation, body: str, frame: _Frame) -> Iterator[Successor]:
        """Where ``branch`` goes; the operands after those before the first label are handed to the blocks in order."""
        position = body.find("^")
        index = len(USE.findall(body, 0, position))
        while position >= 0 and (match := _SUCCESSOR.search(body, position)):
            block = frame.labels.get(match[1])
            if block is None:
                raise InputError(f"no block is labelled ^{match[1][:40]}", line=branch.line)
            position, count = match.end(), 0
            if body.startswith("(", position):
                end = balanced_end(body, position)
                count = len(USE.findall(body[position:end].partition(" : ")[0]))
                position = end
            yield Successor(block, tuple(branch.operands[index : index + count]))
            index += count

    def _check_defined(self, pending: dict[str, Value]) -> None:
        for name, value in pending.items():
            line = value.uses[0][0].line
            raise InputError(f"value {name[:60]} is used and never defined", line=line)
