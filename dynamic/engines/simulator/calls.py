"""Functions that a kernel calls, put in its own text at each call.

Why: Triton emits a ``.func`` for each function marked noinline, and libdevice has a few (float64 sin, cos, tan and pow
call one); the simulator runs one function of basic blocks. A call becomes the callee's instructions, in scopes of
their own, and its ``ret`` a branch behind them; instructions keep their lines. Parameters are bytes of local memory
that caller and callee name alike. Left as they are: calls of functions without a body (``vprintf``) and calls through
a register, of which the emitter of ``call`` judges. Recursion is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from kcontract.dynamic.engines.simulator.faults import Unsupported, located
from kcontract.ir.ptx.operands import Group, Label, Symbol
from kcontract.ir.ptx.program import Function, Instruction, LabelSite, Program, Registers, Row, Scope, Variable
from kcontract.ir.ptx.reader import MAX_STATEMENTS

#: By scope and name, where a ``.param`` variable of the function's body begins in a thread's local memory, and its
#: bytes.
Frames = Mapping[tuple[int, str], tuple[int, int]]


@dataclass(frozen=True)
class Whole:
    """A kernel with all that it calls. ``bytes`` of local memory hold its ``frames``."""

    function: Function
    frames: Frames
    bytes: int

    def frame(self, name: str, scope: int) -> tuple[int, int] | None:
        """Offset and bytes of the ``.param`` variable that a name means in a scope; None for a kernel's parameter."""
        return _seen_from(self.frames, self.function.scopes, name, scope)


def _seen_from(frames: Frames, scopes: Sequence[Scope], name: str, scope: int) -> tuple[int, int] | None:
    while scope >= 0:
        found = frames.get((scope, name))
        if found is not None:
            return found
        scope = scopes[scope].parent
    return None


def inlined(program: Program, function: Function) -> Whole:
    """The function with the bodies of all functions that it calls. Raises ``Unsupported`` with the line of the call."""
    made = _Maker({f.name: f for f in program.functions if f.kind == "func" and not f.declared_only})
    made.add(function, {}, 0, ())
    if not made.called:
        return Whole(function, made.frames, made.bytes)
    whole = replace(
        function,
        variables=tuple(made.variables),
        registers=tuple(made.registers),
        scopes=tuple(made.scopes),
        labels=tuple(made.labels),
        branch_lists=made.branch_lists,
        rows=tuple(made.rows),
    )
    return Whole(whole, made.frames, made.bytes)


def parts(call: Instruction) -> tuple[str, list[str], list[str]]:
    """Name of the function ("" where it is none), arguments and results of a ``call``."""
    names = [x.name for x in call.operands if isinstance(x, (Symbol, Label))]
    groups = [x for x in call.operands if isinstance(x, Group)]
    leads = bool(call.operands) and isinstance(call.operands[0], Group)
    results, arguments = (groups[:1], groups[1:2]) if leads else ([], groups[:1])
    return names[0] if names else "", _symbols(arguments), _symbols(results)


def _symbols(groups: Sequence[Group]) -> list[str]:
    return [x.name for group in groups for x in group.elements if isinstance(x, Symbol)]


@dataclass
class _Maker:
    """Collects the parts of one function from several."""

    functions: Mapping[str, Function]
    rows: list[Row] = field(default_factory=list)
    labels: list[LabelSite] = field(default_factory=list)
    scopes: list[Scope] = field(default_factory=list)
    registers: list[Registers] = field(default_factory=list)
    variables: list[Variable] = field(default_factory=list)
    branch_lists: dict[tuple[int, str], tuple[str, ...]] = field(default_factory=dict)
    frames: dict[tuple[int, str], tuple[int, int]] = field(default_factory=dict)
    bytes: int = 0
    called: bool = False

    def add(
        self, f: Function, given: Mapping[str, tuple[int, int]], base: int, within: tuple[str, ...], end: str = ""
    ) -> None:
        """Append a function. ``given`` are the frames of its parameters, ``base`` is the first free byte of local
        memory, ``within`` the functions it stands in, ``end`` the label to go to instead of ``ret``."""
        first, at = len(self.scopes), []
        self.scopes += [replace(s, parent=s.parent + first if s.parent >= 0 else -1) for s in f.scopes]
        self.registers += [replace(r, scope=r.scope + first) for r in f.registers]
        self.variables += [replace(v, scope=v.scope + first) for v in f.variables]
        self.branch_lists.update(((scope + first, name), names) for (scope, name), names in f.branch_lists.items())
        self.frames.update(((first, name), frame) for name, frame in given.items())
        base = self._lay_out(f, first, base)
        for index, (name, text, guard, offset, scope, inline, place) in enumerate(f.rows):
            at.append(len(self.rows))
            opcode = name.partition(".")[0]
            if opcode == "call" and self._called(f, f.instructions[index], first, base, within):
                continue
            if opcode == "ret" and end:
                name, text = "bra", end
            self.rows.append((name, text, guard, offset, scope + first, inline, place))
        at.append(len(self.rows))
        self.labels += [LabelSite(s.name, s.scope + first, at[s.index]) for s in f.labels]
        if end:
            self.labels.append(LabelSite(end, first, len(self.rows)))

    def _lay_out(self, f: Function, first: int, base: int) -> int:
        """Frames of the ``.param`` variables of a body, behind those of the enclosing scope; returns the end of all.

        Scopes beside each other share their bytes: a call sequence has a scope of its own.
        """
        ends: list[int] = []
        for number, scope in enumerate(f.scopes):
            at = ends[scope.parent] if scope.parent >= 0 else base
            for v in f.variables:
                if v.scope == number and v.space == "param":
                    at = -(-at // max(v.align, 1)) * max(v.align, 1)
                    self.frames[number + first, v.name] = at, v.size or 0
                    at += v.size or 0
            ends.append(at)
        self.bytes = max(self.bytes, *ends)
        return -(-max(ends) // 16) * 16

    def _called(self, f: Function, call: Instruction, first: int, base: int, within: tuple[str, ...]) -> bool:
        """Append what a call calls, if that has a body."""
        name, arguments, results = parts(call)
        callee = self.functions.get(name)
        if callee is None:
            return False
        if name in within:
            raise self._refused(f, call, f"{name} calls itself")
        if len(self.rows) + len(callee.rows) > MAX_STATEMENTS:
            raise self._refused(f, call, f"with all that it calls the kernel has over {MAX_STATEMENTS} instructions")
        wanted = [p.name for p in (*callee.parameters, *callee.returns)]
        frames = [_seen_from(self.frames, self.scopes, x, call.scope + first) for x in (*arguments, *results)]
        given = {name: frame for name, frame in zip(wanted, frames, strict=False) if frame is not None}
        if not len(wanted) == len(frames) == len(given):
            raise self._refused(f, call, f"{name} has other parameters or results than the call gives it")
        self.called = True
        unique = f"$call{len(self.rows)}"
        _, _, guard, offset, scope, inline, place = f.rows[call.index]
        if guard:
            otherwise = guard[1:] if guard.startswith("!") else "!" + guard
            self.rows.append(("bra", f"{unique}_over", otherwise, offset, scope + first, inline, place))
        self.add(callee, given, base, (*within, name), f"{unique}_end")
        if guard:
            self.labels.append(LabelSite(f"{unique}_over", scope + first, len(self.rows)))
        return True

    @staticmethod
    def _refused(f: Function, call: Instruction, why: str) -> BaseException:
        return located(Unsupported(why), f, call.index)
