"""PRC-01: right in every dtype the reference takes. "Does not compile", "refuses" and "wrong" are three answers.

A 16-bit result that only a 32-bit sum would make right is left to PRC-02, which looks at the sums themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kcontract.dynamic import oracle
from kcontract.dynamic.gates.bench import Bench, Found, Trial, samples
from kcontract.dynamic.inputs import Sample
from kcontract.dynamic.sandbox.candidate import Answer

GATE = "PRC-01"
_COMPILER = ("CompilationError", "CompileTimeAssertionFailure", "UnsupportedLanguageConstruct", "PTXASError")
_HALVES = ("float16", "bfloat16")


def check(bench: Bench) -> Found:
    """float32, float16 and bfloat16, thorough also float64, each by its own bound; those the contract names, if any.

    ``problem.origin["dtypes"]`` narrows them. Triton's interpreter does not decide bfloat16: its products are wrong.
    """
    return bench.barred(GATE) or bench.verdict(GATE, _trials(bench))


def _trials(bench: Bench) -> Iterator[Trial]:
    yield bench.ordinary()
    admitted = bench.problem.origin.get("dtypes")
    for sample in samples(GATE, bench):
        dtype = sample.label.split()[0]
        if dtype == bench.dtype or (isinstance(admitted, (list, tuple)) and dtype not in admitted):
            continue
        if dtype == "bfloat16" and bench.candidate.kind == "interpreter":
            yield Trial(sample, "the interpreter's bfloat16 is not a GPU's", judged=False)
            continue
        trial = _trial(bench, sample, dtype)
        yield trial
        odd = bench.uneven(GATE, f"{dtype} odd sizes", bench.spec.with_dtype(dtype)) if dtype in _HALVES else None
        if odd is not None and trial.judged and not trial.reason:
            yield _uneven(bench, odd, dtype)


def _uneven(bench: Bench, sample: Sample, dtype: str) -> Trial:
    """At odd sizes; what is wrong there in its own dtype too is CMP-03's to tell."""
    trial = _trial(bench, sample, dtype)
    own = bench.uneven(GATE, f"{bench.dtype} odd sizes")
    if trial.judged and trial.reason and own is not None and bench.attempt(own).reason:
        return replace(trial, judged=False)
    return trial


def _trial(bench: Bench, sample: Sample, dtype: str) -> Trial:
    taken = bench.eager_dtypes(bench.reference(dtype), sample.inputs)
    if taken is None and bench.eager_dtypes(bench.reference(bench.dtype), bench.nominal().inputs) is not None:
        return Trial(sample, f"the reference does not take {dtype}", judged=False)
    right = bench.expected(sample, dtype=dtype)
    if isinstance(right, str):
        return Trial(sample, right, judged=False)
    answer = bench.answer(sample, dtype=dtype)
    if bench.learn(dtype):
        right = bench.expected(sample, dtype=dtype)
        assert not isinstance(right, str)
    trial = bench.judge(sample, answer, right)
    if not trial.reason:
        return trial
    if dtype in _HALVES and trial.worst is not None and trial.worst.reason == "value":
        form = oracle.form_of(dtype)
        loose = bench.expected(sample, dtype=dtype, model=oracle.Accumulation.of(form).stepwise(form))
        if not isinstance(loose, str) and not bench.judge(sample, answer, loose).reason:
            return Trial(sample, f"{dtype} is right for 16-bit sums only, see PRC-02", judged=False)
    return replace(trial, reason=f"{_how(answer)} {dtype}: {trial.reason}")


def _how(answer: Answer) -> str:
    if answer.failure is None or answer.failure.kind != "raised" or answer.failure.exception == "Fault":
        return "wrong in"
    compiler = answer.failure.exception in _COMPILER or "PassManager" in answer.failure.message
    return "does not compile for" if compiler else "refuses"
