"""One candidate on one engine beside its oracle: what every gate calls.

A gate asks ``expected`` for what is right on a sample, ``answer`` for what the candidate made of it, and ``judge``
whether the second lies inside the first. Samples, references and bounds are kept, so that gates share them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from kcontract.dynamic import oracle
from kcontract.dynamic.gates.answers import (
    count_kernels,
    described,
    others,
    out_of_bounds,
    sentence,
    unfit,
    unlike,
)
from kcontract.dynamic.gates.references import NATIVE, References
from kcontract.dynamic.inputs import Sample, build
from kcontract.dynamic.oracle import Comparison, Expected
from kcontract.dynamic.problems.problem import Problem
from kcontract.dynamic.sandbox.candidate import Answer, Candidate
from kcontract.model import Basis, Report, Status, Verdict, Witness

#: Opens the reason of a gate that needs a candidate that is right to say anything.
WRONG = "wrong on ordinary inputs already"
#: The configuration an autotuner chose itself (``Candidate.tuners``).
CHOSEN = -1


@dataclass(frozen=True, slots=True)
class Found:
    """A gate's answer from running: its verdict, a witness for FAIL, inputs ``tried``, JSON-able ``evidence``."""

    verdict: Verdict
    witness: Witness | None = None
    tried: int = 0
    evidence: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Trial:
    """One sample judged. ``reason`` is empty where all is right; ``worst`` the comparison that failed, if one did."""

    sample: Sample
    reason: str = ""
    worst: Comparison | None = None
    judged: bool = True


class Bench(References):
    """``spec`` at the sizes gates work on, ``native`` the problem's own; ``dtype`` of floating inputs and parameters.

    ``given`` are the problem's own inputs, ``sight`` is what one observed call showed (launches, operations),
    ``reports`` what the static pass said of each kernel it compiled; ``log`` keeps every answer for HON-01.
    """

    def __init__(
        self, problem: Problem, candidate: Candidate, engine: str, *, seed: int = 0, thorough: bool = False,
        dtype: str | None = None, progress: Callable[[str], None] = lambda text: None,
        dims: Mapping[str, int] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(problem, candidate, engine, seed, thorough, dtype, progress, dims)
        self.sight: Answer | None = None
        self.tuners: list[tuple[str, list[str]]] = []
        self.configuration = CHOSEN
        self.first: tuple[Sample, Answer] | None = None
        self.log: list[tuple[str, Answer]] = []
        self.reports: list[Report] = []
        self._ordinary: Trial | None = None
        self._gross = ""

    @property
    def invents(self) -> str:
        """Why wrong values prove nothing here; empty where they do."""
        if self.candidate.kind == "interpreter" and self.dtype == "bfloat16":
            return "the interpreter's bfloat16 is not a GPU's"
        return ""

    # -- the candidate ------------------------------------------------------------------------------------------------

    def answer(self, sample: Sample, *, dtype: str | None = None, **options: Any) -> Answer:
        """What the candidate makes of a sample; see ``Candidate.call`` for the options. Memory that it leaves
        uninitialised holds zeros unless ``poison`` says otherwise: only ORD-02 judges what it reads of that."""
        options = {"poison": "zero", **options}
        dtype = dtype or self.dtype
        if self._loaded != dtype:
            failure = self.candidate.load(self._state(dtype))
            if failure is not None:
                return Answer(failure=failure)
            self._loaded = dtype
        answer = self.candidate.call(sample.inputs, **options)
        if out_of_bounds(answer) and not options.get("placement", "").startswith("guarded"):
            # MEM-01 tells; here its consequences are judged
            answer = self.candidate.call(sample.inputs, **{**options, "placement": "guarded:finite"})
        if (odd := others(answer.parts)) and odd == others(self._parts(dtype, sample.inputs)):
            answer = replace(answer, parts=())  # the same text, or whatever it is: not compared
        self.log.append((f"{sample.gate} {sample.label}", answer))
        return answer

    def _state(self, dtype: str) -> list[tuple[str, Any]]:
        module = self.reference(dtype)
        if not isinstance(module, torch.nn.Module) or self.master is self.plain:
            return []
        return [(n, t.detach().cpu()) for n, t in (*module.named_parameters(), *module.named_buffers())]

    def judge(self, sample: Sample, answer: Answer, expected: Expected) -> Trial:
        """Whether the candidate's outputs lie inside the bound, and are what a result must be."""
        if reason := unfit(answer):
            return Trial(sample, reason)
        if answer.parts and (reason := unlike(answer, self._parts(None, sample.inputs))):
            return Trial(sample, reason)
        values = [v.to(self.device) for v in answer.values]
        worst = next((c for c in oracle.compare_all(values, expected, self.policy, brief=True) if not c.ok), None)
        return Trial(sample, sentence(worst) if worst is not None else "", worst)

    def attempt(self, sample: Sample, **options: Any) -> Trial:
        """``expected``, ``answer`` and ``judge`` of one sample; not judged where the reference cannot take it."""
        dtype = options.get("dtype")
        right = self.expected(sample, dtype=dtype)
        if isinstance(right, str):
            return Trial(sample, right, judged=False)
        answer = self.answer(sample, **options)
        if self.learn(dtype or self.dtype):
            right = self.expected(sample, dtype=dtype)
            assert not isinstance(right, str)
        return self.judge(sample, answer, right)

    def ordinary(self) -> Trial:
        """The candidate on ordinary inputs at the working sizes, judged once."""
        if self._ordinary is None:
            sample = self.nominal()
            self._ordinary = self.attempt(sample)
            if self._ordinary.reason:
                self._gross = "" if self.near(sample) else self._ordinary.reason
        return self._ordinary

    def hopeless(self, gate: str) -> Found | None:
        """The answer of a gate that has nothing to stand on: on ordinary inputs the candidate fails, or is not even
        roughly right (see ``near``). None where it is: a gate that asks for more can tell its own fault."""
        trial = self.ordinary()
        if not trial.judged:
            return Found(self.said(gate, Status.NOT_APPLICABLE, trial.reason))
        if self._gross:
            return Found(self.said(gate, Status.UNDECIDED, f"{WRONG}: {self._gross}"))
        return None

    def barred(self, gate: str) -> Found | None:
        """The answer of a gate that only tells its own fault where the candidate is right on ordinary inputs."""
        if found := self.hopeless(gate):
            return found
        if reason := self.ordinary().reason:
            return Found(self.said(gate, Status.UNDECIDED, f"{WRONG}: {reason}"))
        return None

    def near(self, sample: Sample, dtype: str | None = None) -> bool:
        """Whether the candidate takes a sample and is roughly right on it: to 1e-2 (1 + |y|), or to 5 % of the root
        mean square of all y, which leaves room for 16-bit sums."""
        answer, right = self.answer(sample, dtype=dtype), self.expected(sample, dtype=dtype)
        self.learn(dtype or self.dtype)
        if isinstance(right, str) or unfit(answer) or len(answer.values) != len(right.outputs):
            return False
        pairs = list(zip(answer.values, right.outputs, strict=True))
        if any(v.shape != e.value.shape or (v.is_floating_point() and v.dtype != e.dtype) for v, e in pairs):
            return False
        return all(
            torch.allclose(
                v.to(y), y, rtol=1e-2, atol=max(1e-2, 0.05 * float(y.square().mean().sqrt())), equal_nan=True
            )
            for v, y in ((v, e.value.double()) for v, e in pairs)
        )

    def settle(self) -> None:
        """Look at the candidate once, and take the native sizes where it is right at those and not at smaller ones.

        A candidate written for one shape only then fails CMP-03, and no other gate for the same reason.
        """
        small = self.nominal()
        self.sight = self.answer(small, observe=True, poison="nan")
        if self.candidate.unset and self.master is not self.plain:
            self._as_initialised()
            self.sight = self.answer(small, observe=True, poison="nan")
        self.first = (small, self.sight)
        self.kernels = max(1, count_kernels(self.sight))
        self.learn(self.dtype)
        self._choose()
        if self.pinned or dict(self.spec.dims) == dict(self.native) or not self.ordinary().reason:
            return
        moved = self.spec.with_dims(self.native)
        if self.elements(moved) > NATIVE[self.candidate.kind]:
            return
        sample = Sample("CMP-01", "normal", self.seed, build(moved, self.seed), moved.dims)
        with self.natively():
            right = not self.attempt(sample).reason
        if right:
            self.spec, self._ordinary, self._gross = moved, None, ""
            self.device = self._place(moved)
            self.notes.append("right at its native sizes only: the other gates are judged there")
            self.sight = self.answer(sample, observe=True, poison="nan")
            self._choose()

    def _as_initialised(self) -> None:
        """Where the candidate's parameters cannot be matched with the reference's: leave both as the seed drew them."""
        self.notes.append(
            f"its parameters are not named or shaped as the reference's ({', '.join(self.candidate.unset[:3])}); both "
            f"keep their initial values"
        )
        self.master = self.plain
        self._references.clear()
        self._kept.clear()
        self.candidate.forget()
        self._loaded = ""

    def _choose(self) -> None:
        """Leave each autotuner one configuration for all gates but CFG-01: the one it chose, if that is right on
        ordinary inputs, else the first that is. So no gate waits for tuning, nor fails for another configuration."""
        self.tuners = self.candidate.tuners(CHOSEN) if self.sight is not None and self.sight.failure is None else []
        if not self.tuners or not self.ordinary().reason:
            return
        for k in (*range(max(len(configs) for _, configs in self.tuners)), CHOSEN):
            self.configuration = k
            self.candidate.tuners(k)
            self._ordinary, self._gross = None, ""
            if not self.ordinary().reason:
                return

    def pin(self, configuration: int, rebuild: bool = False) -> None:
        """Leave each autotuner one configuration; ``rebuild`` where the candidate was tuned as it was made."""
        self.candidate.tuners(configuration, rebuild)
        self._loaded = "" if rebuild else self._loaded

    # -- verdicts -----------------------------------------------------------------------------------------------------

    def over(self, gate: str, samples: Iterable[Sample], **options: Any) -> Found:
        """Judge samples until one fails: FAIL with a witness, PASS, or NOT_APPLICABLE where none could be judged."""
        return self.verdict(gate, (self.attempt(sample, **options) for sample in samples))

    def verdict(self, gate: str, trials: Iterable[Trial], fine: str = "right") -> Found:
        """The verdict of trials, up to the first that fails. ``fine`` is what PASS says of the inputs."""
        tried, left, why = 0, 0, ""
        for trial in trials:
            self.progress(f"{gate} {trial.sample.label}")
            if not trial.judged:
                left, why = left + 1, why or trial.reason
                continue
            tried += 1
            if trial.reason:
                where = f"{trial.reason}, on {described(trial.sample)}"
                return Found(self.said(gate, Status.FAIL, where), self.witness(gate, trial), tried)
        rest = f"; {left} not judged ({why})" if left else ""
        if not tried:
            reason = f"none of its {left} inputs could be judged: {why}" if left else "there is nothing to try here"
            return Found(self.said(gate, Status.NOT_APPLICABLE, reason))
        return Found(self.said(gate, Status.PASS, f"{fine} on {tried} inputs{rest}"), tried=tried)

    def said(self, gate: str, status: Status, reason: str) -> Verdict:
        """An observed verdict of this engine."""
        basis = Basis.OBSERVED if status in (Status.PASS, Status.FAIL) else Basis.NONE
        return Verdict(gate, status, basis, reason, engine=self.engine)

    def witness(self, gate: str, trial: Trial) -> Witness:
        """The file content that replays a failing trial."""
        sample, worst = trial.sample, trial.worst
        named = [(a.name, v) for a, v in zip(self.spec.arguments, sample.inputs, strict=True)]
        tensors = {name: v for name, v in named if isinstance(v, torch.Tensor)}
        return Witness(
            gate=gate,
            kernel=self.problem.name,
            target=self.candidate.target,
            engine=self.engine,
            seed=sample.seed,
            shapes={name: tuple(v.shape) for name, v in tensors.items()},
            dtypes={name: str(v.dtype).removeprefix("torch.") for name, v in tensors.items()},
            output=worst.output if worst else "",
            index=worst.index if worst else (),
            found=worst.found if worst else trial.reason,
            wanted=worst.wanted if worst else "",
            allowed=worst.allowed if worst else "",
            problem={
                **self.problem.origin, "set": sample.gate, "label": sample.label, "dims": dict(sample.dims),
                "dtype": self.dtype, "bench_seed": self.seed, "sizes": dict(self.spec.dims),
                "thorough": self.thorough, "reason": trial.reason,
            },
        )  # fmt: skip


def with_inputs(sample: Sample, at: int, value: Any, label: str) -> Sample:
    """The sample with one argument replaced."""
    return replace(sample, inputs=(*sample.inputs[:at], value, *sample.inputs[at + 1 :]), label=label)


def samples(gate: str, bench: Bench) -> Iterator[Sample]:
    """The gate's set of inputs at the bench's sizes, small or thorough."""
    from kcontract.dynamic import inputs

    make = inputs.thorough if bench.thorough else inputs.sample
    return make(gate, bench.spec, bench.seed)
