"""Reads PTX text into a ``Program``.

Why: PTX is a list of statements, so one regular expression a statement is enough, and operands wait until somebody
asks. Debug sections are skipped whole. Unknown opcodes and directives are kept as they stand; text that is not PTX
raises ``InputError``. Nothing here knows an instruction's signature.

Each alternative of the expressions below starts with another character than its rivals, and comments must run to
their end, so that no text makes them try twice: hostile input costs linear time.
"""

from __future__ import annotations

import re

from kcontract.errors import InputError
from kcontract.ir.location import Location
from kcontract.ir.ptx import declarations
from kcontract.ir.ptx.program import Function, LabelSite, Program, Registers, Row, Scope, Source, Variable

#: The longest text that is read, in characters, and the most statements of a function. The largest PTX seen in 859
#: library kernels had 557 kB and some 25,000 statements.
MAX_CHARACTERS = 16 * 2**20
MAX_STATEMENTS = 250_000
_MAX_DEPTH = 256
_MAX_DECLARED = 50_000
_MAX_INLINING = 64

_COMMENT = r"//[^\n]*(?=\n|\Z)|/\*[^*]*(?:\*(?!/)[^*]*){0,4096}\*/"
_OTHER = rf"(?:{_COMMENT}|\"[^\"\n]*\"|/(?![/*]))"
_OPERANDS = rf"[^;{{}}/\"]*(?:(?:\{{[^{{}};]*\}}|{_OTHER})[^;{{}}/\"]*){{0,512}}"
_LOC, _LABEL, _INSTRUCTION, _NOTE, _BRACE, _DIRECTIVE = 1, 2, 5, 6, 7, 8
_STATEMENT = re.compile(
    r"\s*(?:"
    r"\.loc[ \t]([^\n/]*)[^\n]*"
    r"|([$%A-Za-z_][\w$]*)[ \t]*:(?!:)"
    rf"|(?:@[ \t]*(!?[ \t]*[%$\w]+)\s+)?([A-Za-z_]\w*(?:\.[\w:]+)*)(?![\w.:$])({_OPERANDS});"
    rf"|({_COMMENT})"
    r"|([{}])"
    r"|\.(\w+)"
    r"|;)",
    re.ASCII,
)
_PLACE = re.compile(
    r"\s*(\d{1,9})\s+(\d{1,9})\s+(\d{1,9})"
    r"(?:\s*,\s*function_name\s+[^,]*,\s*inlined_at\s+(\d{1,9})\s+(\d{1,9})\s+(\d{1,9}))?",
    re.ASCII,
)
_FILE = re.compile(r"[ \t]+(\d{1,9})[ \t]+\"([^\"\n]*)\"[^\n]*", re.ASCII)
_REST_OF_LINE = re.compile(r"[^\n/]*", re.ASCII)
_TO_SEMICOLON = re.compile(rf"([^;/\"]*(?:{_OTHER}[^;/\"]*){{0,4096}});", re.ASCII)
_TO_BODY = re.compile(rf"([^;{{}}/\"]*(?:{_OTHER}[^;{{}}/\"]*){{0,4096}})([;{{])", re.ASCII)
_HEAD = re.compile(rf"(?:\s|{_COMMENT}){{0,65536}}\.version\s+(\d{{1,3}})\.(\d{{1,3}})\b", re.ASCII)
_LINKAGE = re.compile(r"\s*\.(visible|extern|weak|common)\b", re.ASCII)
_FIRST_WORD = re.compile(r"\s*\.(\w+)", re.ASCII)
_SECTION = re.compile(r"[^{}]*\{[^{}]*\}", re.ASCII)
_VARIABLE_SPACES = frozenset(("shared", "global", "const", "local", "param", "tex"))


def parse(text: str) -> Program:
    """The module in ``text``. Raises ``InputError`` for text that is not PTX, is cut off, or is over the limits."""
    if len(text) > MAX_CHARACTERS:
        raise InputError(f"PTX of {len(text)} characters is over the limit of {MAX_CHARACTERS}; it is not read")
    return _Scanner(text).module()


class _Scanner:
    """One pass over the text; ``at`` is where reading goes on."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.source = Source(text)
        self.files: dict[int, str] = {}
        self.functions: list[Function] = []
        self.regions = 0
        self.place = -1
        self.places: dict[tuple[int, int, int, int], int] = {}
        self.depths: list[int] = []
        self.newest: dict[tuple[int, int, int], int] = {}

    def fail(self, message: str) -> InputError:
        return InputError(f"{message}; the text is damaged or cut off", line=self.source.line(self.at))

    def module(self) -> Program:
        head = _HEAD.match(self.text)
        if head is None:
            raise InputError("this is not PTX: it does not start with .version", line=1)
        self.at = head.end()
        target: tuple[str, ...] = ()
        address_size = None
        variables: list[Variable] = []
        while (match := _STATEMENT.match(self.text, self.at)) is not None:
            kind = match.lastindex
            if kind is not None and kind not in (_LOC, _NOTE, _DIRECTIVE):
                self.at = match.end() - 1
                raise self.fail("PTX has code outside of a function")
            self.at = match.end()
            if kind != _DIRECTIVE:
                continue
            word = match[_DIRECTIVE]
            if word == "target":
                target = tuple(part.strip() for part in self.rest_of_line().split(","))
            elif word == "address_size":
                size = self.rest_of_line()
                address_size = int(size) if size in ("32", "64") else None
            else:
                self.module_directive(word, match.start(_DIRECTIVE) - 1, variables)
        self.at_end("PTX has a statement that cannot be read")
        if not target or not target[0]:
            raise self.fail("PTX names no .target")
        self.source.places.extend(self.locations())
        version = (int(head[1]), int(head[2]))
        return Program(
            version, target[0], target[1:], address_size, self.files, tuple(variables), tuple(self.functions)
        )

    def at_end(self, message: str) -> None:
        if self.text[self.at :].strip():
            self.at += len(self.text[self.at :]) - len(self.text[self.at :].lstrip())
            raise self.fail(message)

    def rest_of_line(self) -> str:
        match = _REST_OF_LINE.match(self.text, self.at)
        assert match is not None
        self.at = match.end()
        return match[0].strip()

    def statement(self) -> str:
        """The text up to the next semicolon, which is passed."""
        match = _TO_SEMICOLON.match(self.text, self.at)
        if match is None:
            raise self.fail("PTX has a directive without an end")
        self.at = match.end()
        return match[1]

    def module_directive(self, word: str, start: int, variables: list[Variable]) -> None:
        if word == "file":
            self.file()
        elif word == "section":
            self.section()
        elif word == "version":
            self.rest_of_line()
        else:
            linkage, self.at = "", start
            while (match := _LINKAGE.match(self.text, self.at)) is not None:
                linkage, self.at = match[1], match.end()
            first = _FIRST_WORD.match(self.text, self.at)
            word = first[1] if first is not None else ""
            if first is not None and word in ("entry", "func"):
                self.at = first.end()
                self.function(word, linkage)
            elif first is not None and word in _VARIABLE_SPACES:
                self.at = first.end()
                line = self.source.line(start)
                variables += declarations.variables(word, linkage, self.statement(), -1, line)
            else:
                self.statement()

    def file(self) -> None:
        match = _FILE.match(self.text, self.at)
        if match is None:
            raise self.fail("PTX has a .file that cannot be read")
        self.files[int(match[1])] = match[2]
        self.at = match.end()

    def section(self) -> None:
        match = _SECTION.match(self.text, self.at)
        if match is None:
            raise self.fail("PTX has a section without an end")
        self.at = match.end()

    def function(self, kind: str, linkage: str) -> None:
        line = self.source.line(self.at)
        match = _TO_BODY.match(self.text, self.at)
        if match is None:
            raise self.fail("PTX has a function without a body")
        header = declarations.header(match[1], line)
        self.at = match.end()
        self.place = -1
        body = _Body()
        if match[2] == "{":
            self.body(body)
        self.functions.append(
            Function(
                header.name,
                kind,
                linkage,
                header.parameters,
                header.returns,
                header.directives,
                tuple(body.variables),
                tuple(body.registers),
                tuple(body.scopes),
                tuple(body.labels),
                body.branch_lists,
                line,
                match[2] == ";",
                tuple(body.rows),
                self.source,
            )
        )

    def body(self, body: _Body) -> None:
        """Statements up to the brace that closes the function."""
        text, read, rows = self.text, _STATEMENT.match, body.rows
        body.scopes.append(Scope(-1, self.source.line(self.at)))
        scope, inline, place, at = 0, -1, -1, self.at
        for _ in range(MAX_STATEMENTS):
            match = read(text, at)
            if match is None:
                self.at = at
                self.at_end("PTX has a statement that cannot be read")
                raise self.fail("PTX ends inside a function")
            at = match.end()
            kind = match.lastindex
            if kind == _INSTRUCTION:
                guard, name, operands = match.group(3, 4, 5)
                if "/" in operands:
                    operands = declarations.without_comments(operands)
                rows.append((name, operands, guard or "", match.start(4), scope, inline, place))
            elif kind == _LOC:
                self.at = at
                said = self.located(match[_LOC])
                if inline < 0:  # inside inline assembly LLVM counts on from its line, one for each line of assembly
                    place = said
            elif kind == _LABEL:
                body.labels.append(LabelSite(match[_LABEL], scope, len(rows)))
            elif kind == _NOTE:
                note = match[_NOTE]
                if note.startswith("// begin inline asm"):
                    inline, self.regions = self.regions, self.regions + 1
                elif note.startswith("// end inline asm"):
                    inline = -1
            elif kind == _BRACE:
                if match[_BRACE] == "{":
                    scope = self.opened(body, scope, at)
                else:
                    scope = body.scopes[scope].parent
                    if scope < 0:
                        self.at = at
                        return
            elif kind == _DIRECTIVE:
                self.at = at
                self.body_directive(match[_DIRECTIVE], body, scope)
                at = self.at
        raise InputError(f"PTX has a function of over {MAX_STATEMENTS} statements; it is not read")

    def opened(self, body: _Body, parent: int, at: int) -> int:
        depth = 0 if parent < 0 else body.depths[parent]
        if depth >= _MAX_DEPTH:
            self.at = at
            raise self.fail(f"PTX has more than {_MAX_DEPTH} scopes in one another")
        body.scopes.append(Scope(parent, self.source.line(at)))
        body.depths.append(depth + 1)
        return len(body.scopes) - 1

    def body_directive(self, word: str, body: _Body, scope: int) -> None:
        line = self.source.line(self.at)
        if word == "reg":
            body.registers += declarations.registers(self.statement(), scope, line)
        elif word in _VARIABLE_SPACES:
            body.variables += declarations.variables(word, "", self.statement(), scope, line)
        elif word == "file":
            self.file()
        elif word == "section":
            self.section()
        elif word in ("branchtargets", "calltargets", "callprototype"):
            names = declarations.without_comments(self.statement())
            if body.labels and body.labels[-1].index == len(body.rows):
                label = body.labels.pop()
                if word == "branchtargets":
                    body.branch_lists[scope, label.name] = tuple(name.strip() for name in names.split(","))
        else:
            self.statement()
        if len(body.registers) + len(body.variables) > _MAX_DECLARED:
            raise self.fail(f"PTX declares over {_MAX_DECLARED} names in a function")

    def located(self, text: str) -> int:
        """The number of the place that a ``.loc`` names."""
        match = _PLACE.match(text)
        if match is None:
            raise self.fail("PTX has a .loc that cannot be read")
        file, line, column = int(match[1]), int(match[2]), int(match[3])
        caller = -1
        if match[4] is not None:
            site = (int(match[4]), int(match[5]), int(match[6]))
            # LLVM writes the call site's own .loc, with its callers, before those inlined into it.
            caller = self.newest.get(site, -1)
            if caller < 0 or self.depths[caller] >= _MAX_INLINING:
                caller = self.numbered(*site, -1)
        number = self.numbered(file, line, column, caller)
        self.newest[file, line, column] = number
        return number

    def numbered(self, file: int, line: int, column: int, caller: int) -> int:
        key = (file, line, column, caller)
        number = self.places.get(key)
        if number is None:
            number = self.places[key] = len(self.places)
            self.depths.append(0 if caller < 0 else self.depths[caller] + 1)
        return number

    def locations(self) -> list[Location]:
        """The places in order of their numbers; a caller's number is smaller than that of what it called."""
        made: list[Location] = []
        for file, line, column, caller in self.places:
            callers = () if caller < 0 else made[caller].chain()
            made.append(Location(self.files.get(file, f"<file {file}>"), line, column, None, callers))
        return made


class _Body:
    """What a function's body declares, while it is read."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.variables: list[Variable] = []
        self.registers: list[Registers] = []
        self.scopes: list[Scope] = []
        self.depths: list[int] = [1]
        self.labels: list[LabelSite] = []
        self.branch_lists: dict[tuple[int, str], tuple[str, ...]] = {}
