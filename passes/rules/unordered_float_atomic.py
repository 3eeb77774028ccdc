"""Float sums whose order of addition is left to the hardware (ORD-02)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kcontract.ir.artifact import Artifact
from kcontract.ir.ttgir import Value
from kcontract.model import Confidence, Determinism, Finding, Level, Place, Settled
from kcontract.passes.analysis.address import Addresses
from kcontract.passes.analysis.exact import integer_magnitude
from kcontract.passes.analysis.flow import is_float
from kcontract.passes.analysis.meeting import Answer, Meeting, Meetings
from kcontract.passes.analysis.memory_sums import Sum, atomics
from kcontract.passes.analysis.origin import adds_to_itself, is_sum, place
from kcontract.passes.analysis.ranges import Ranges
from kcontract.passes.analysis.turns import Wait, wait_before
from kcontract.passes.base import Facts, Rule

_ASSEMBLY = ("tt.elementwise_inline_asm", "ttg.warp_specialize_inline_asm")
_PTX = re.compile(
    r"\b(?:red|atom|multimem\.red|cp\.reduce\.async\.bulk)(?:\.\w+(?:::\w+)?)*\.add(?:\.\w+(?:::\w+)?)*"
    r"\.(f16x2|bf16x2|f16|bf16|f32|f64)\b"
)
_NAMES = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64"}


class UnorderedFloatAtomic(Rule):
    """Finds float additions to memory that several programs or lanes make in no fixed order.

    ## Contract

    Two runs on the same inputs give the same bits (gate ORD-02). A contract that declares `determinism: bounded`
    allows runs to differ within the error bound instead; one that declares `determinism: bitwise` makes each addition
    at which two writers are proved to meet a violation.

    ## Why it matters

    Float addition is not associative. Where two programs add to one address, the hardware decides who comes first,
    and the last bits change from run to run: a training run cannot be repeated, and a difference between two builds
    cannot be told from noise.

    ## Fires on

    `tl.atomic_add` on float16, bfloat16, float32 and float64, reductions of a descriptor (TMA), `red` and `atom` adds
    in inline assembly or native PTX, and a load, add and store behind a lock that any program may take next. It is a
    hazard where two programs or two lanes are proved to meet at one address, and where nothing in the kernel keeps
    them apart (the address comes from a loaded index); the message says which.

    ## Silent on

    Addresses with one writer: distinct for all program ids and lanes by bounds or by proof, or guarded by
    `program_id == 0`. Sums that wait for their turn, on a flag whose awaited value depends on the program's id. Sums of
    integers in float32 or float64, which are exact up to 2^24 and 2^53. Integer atomics.

    ## Limits

    Strides are taken to keep rows apart, grid axes that the kernel never reads to have extent 1, and integer arguments
    to be positive. A flag is trusted to be raised only after the sum. Index arithmetic is taken not to overflow. Two
    different atomics of one kernel that add to the same buffer are judged one by one. Two launches on different
    streams are not seen.

    ## Source

    Level table: docs/levels.md. Reported cases: triton-lang/triton issue 8424, Dao-AILab/flash-attention issue 414
    (atomics ordered by a semaphore), apple/ml-cross-entropy issue 14 (sum under a lock).
    """

    slug = "unordered-float-atomic"
    gate = "ORD-02"
    since = "0.1"

    def check(self, artifact: Artifact, facts: Facts) -> Iterator[Finding | Settled]:
        """Judge each sum in memory; settle the gate's atomics where each has one writer or a fixed order."""
        if artifact.module is None:
            yield from self._native(artifact, facts)
            return
        clean = True
        count = 0
        said = set()
        for found in (*atomics(artifact.module), *_locked(artifact, facts)):
            count += 1
            for finding in self._judge(found, facts):
                clean = False
                same = finding.location, finding.message
                if finding.location is None or same not in said:  # unrolled copies of one line are one finding
                    said.add(same)
                    yield finding
        for operation in artifact.module.find(*_ASSEMBLY):
            match = _PTX.search(operation.body)
            if match:
                clean = False
                answer = Answer(Meeting.UNKNOWN, "programs", "the address is made in inline assembly")
                yield self._finding(facts, place(operation), f"{_name(match[1])} atomic in assembly", answer)
        if clean:
            reason = f"{count} float sums in memory, each in a fixed order" if count else "no float sum in memory"
            yield Settled(self.gate, "atomics", "ttgir", reason, applicable=count > 0)

    def _judge(self, found: Sum, facts: Facts) -> Iterator[Finding]:
        if found.value.type.element in ("f32", "f64") and _is_whole(found.value, facts.get(Ranges)):
            return
        addresses = facts.get(Addresses)
        wait = wait_before(found.operation, addresses)
        answer = facts.get(Meetings).at(found.operation, found.coordinates, found.box, found.mask)
        if answer.meeting is Meeting.APART or (wait is Wait.TURN and answer.who == "programs"):
            return
        kind = f"{_name(found.value.type.element)} {found.what}"
        yield self._finding(facts, place(found.operation), kind, answer)

    def _finding(self, facts: Facts, place: Place, kind: str, answer: Answer) -> Finding:
        met = answer.meeting is Meeting.MEET
        declared = facts.contract.determinism
        level = Level.NOTE if declared is Determinism.BOUNDED else Level.HAZARD
        if declared is Determinism.BITWISE and met:
            level = Level.VIOLATION
        how = "two {} meet at" if met else "two {} may meet at"
        evidence: dict[str, object] = {"meeting": answer.meeting.value, "who": answer.who, "reason": answer.reason}
        if answer.example:
            evidence["example"] = list(answer.example)
        return Finding(
            self.slug,
            self.gate,
            level,
            f"{kind} in no fixed order: {how.format(answer.who)} one address, wanted one writer or a fixed order",
            place,
            Confidence.PROVED if met else Confidence.INFERRED,
            answer.reason + (f": {answer.example[0]} and {answer.example[1]}" if answer.example else ""),
            "write partial sums and add them in a second kernel, or let programs wait for their turn",
            "run it five times on the same inputs and compare bits",
            evidence=evidence,
        )

    def _native(self, artifact: Artifact, facts: Facts) -> Iterator[Finding | Settled]:
        if artifact.ptx is None:
            return
        clean = True
        for number, line in enumerate(artifact.ptx.splitlines(), 1):
            match = _PTX.search(line) if ".add" in line else None
            if match:
                clean = False
                answer = Answer(Meeting.UNKNOWN, "threads", "the address of native code is not analysed")
                yield self._finding(facts, Place(None, "ptx", number), f"{_name(match[1])} atomic", answer)
        if clean:
            yield Settled(self.gate, "atomics", "ptx", "no float atomic", applicable=False)


def _locked(artifact: Artifact, facts: Facts) -> Iterator[Sum]:
    """Plain stores of ``load + value`` to the loaded address, behind a lock."""
    if artifact.module is None or not artifact.module.find("scf.while"):
        return
    addresses = facts.get(Addresses)
    for store in artifact.module.find("tt.store"):
        pointer, value, *rest = store.operands
        if not is_float(value) or wait_before(store, addresses) is not Wait.LOCK:
            continue
        if adds_to_itself(pointer, value, addresses):
            yield Sum(store, (pointer,), (), value, rest[0] if rest else None, "sum under a lock")


def _is_whole(value: Value, ranges: Ranges) -> bool:
    """Whether a value is a sum of integers in float's clothes."""
    todo = [value]
    while todo:
        value = todo.pop()
        made = value.definition
        if made is not None and (made.name in ("arith.addf", "arith.subf") or is_sum(made)):
            todo += made.operands
        elif integer_magnitude(value, ranges) is None:
            return False
    return True


def _name(element: str) -> str:
    return _NAMES.get(element.removesuffix("x2"), element)
