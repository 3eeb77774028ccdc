"""Buffers that a kernel adds to or rewrites, and that somebody must set up before each launch (ORD-02)."""

from __future__ import annotations

from collections.abc import Iterator

from kcontract.ir.artifact import Artifact
from kcontract.ir.ttgir import Operation, Value
from kcontract.model import Confidence, Finding, Level
from kcontract.passes.analysis.address import Addresses, pointer_argument
from kcontract.passes.analysis.origin import place
from kcontract.passes.base import Facts, Rule

_ADDS = ("fadd", "add", "fmax", "fmin", "max", "min", "umax", "umin")
_DEEPEST = 400


class UpdateInPlace(Rule):
    """Names buffers whose result depends on what they held before the launch.

    ## Contract

    Two runs on the same inputs give the same bits (gate ORD-02), so a buffer that is added to is set before each run,
    and a buffer that is rewritten is restored.

    ## Why it matters

    An accumulator from `torch.empty` starts with another tensor's numbers. An autotuner launches a kernel many times:
    without `reset_to_zero` its configurations add up, without `restore_value` each one works on the last one's result;
    the first call is then wrong, and a wrong configuration can hide behind a right one.

    ## Fires on

    An atomic sum, maximum or minimum into an argument that the kernel has not stored to before, and a store to an
    argument of a value computed from what was loaded at the same place. A note each, one an argument.

    ## Silent on

    Arguments that are only read or only written; locks and counters of integers that are exchanged or compared.

    ## Limits

    The IR does not say how a buffer was made, nor what the autotuner resets: the note says what to look at.

    ## Source

    Reported cases: ByteDance-Seed/Triton-distributed PR 184 (5096 for 4096), triton-lang/triton issues 6547, 7181,
    9230, 3004 (autotuned kernels in place).
    """

    slug = "update-in-place"
    gate = "ORD-02"
    since = "0.1"

    def check(self, artifact: Artifact, facts: Facts) -> Iterator[Finding]:
        """Name each argument once."""
        module = artifact.module
        if module is None:
            return
        addresses = facts.get(Addresses)
        loaded = {pointer_argument(load.operands[0]) for load in module.find("tt.load")}
        said: set[Value] = set()
        stored: set[Value] = set()
        for operation in module.find("tt.atomic_rmw", "tt.store"):
            base = pointer_argument(operation.operands[0])
            if base is None or base in said:
                continue
            name = base.name.lstrip("%")
            if operation.name == "tt.store":
                if base in loaded and _from_itself(operation, base, addresses):
                    said.add(base)
                    yield self._finding(
                        operation, f"{name} is rewritten from what it held", f"restore_value=[{name!r}]"
                    )
                stored.add(base)
            elif (
                base not in stored and (operation.string("atomic_rmw_op") or "") in _ADDS and not _is_counter(operation)
            ):
                said.add(base)
                yield self._finding(operation, f"{name} is added to", f"reset_to_zero=[{name!r}]")

    def _finding(self, operation: Operation, found: str, option: str) -> Finding:
        return Finding(
            self.slug,
            self.gate,
            Level.NOTE,
            f"{found} and never set before, wanted it set before each launch",
            place(operation),
            Confidence.READ,
            "the result depends on what the buffer held before the launch",
            f"set it in the wrapper, and where the kernel is autotuned pass {option}",
            "run it on buffers poisoned with NaN and with a finite pattern, first call and second apart",
        )


def _is_counter(operation: Operation) -> bool:
    """Whether an integer atomic's old value is used: a ticket or a flag, no result."""
    return bool(operation.results and operation.results[0].uses) and not operation.operands[1].type.element.startswith(
        ("f", "bf")
    )


def _from_itself(store: Operation, base: Value, addresses: Addresses) -> bool:
    """Whether a stored value is computed from a load of the same elements."""
    target = store.operands[0]
    seen: set[Value] = set()
    todo = [store.operands[1]]
    while todo and len(seen) < _DEEPEST:
        value = todo.pop()
        if value in seen:
            continue
        seen.add(value)
        made = value.definition
        if made is None:
            continue
        if made.name == "tt.load":
            source = made.operands[0]
            if source is target or (
                pointer_argument(source) is base
                and source.type.shape == target.type.shape
                and addresses.of(source) == addresses.of(target)
            ):
                return True
        else:
            todo += made.operands
    return False
