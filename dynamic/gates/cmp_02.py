"""CMP-02: gradients of every input and parameter are right, for random upstream gradients, in two backwards.

Who is judged: problems that ask for gradients (an input that requires one, or ``problem.origin["gradients"]``), and
candidates that define a backward (a ``torch.autograd.Function``) or whose results carry every gradient. A kernel that
is forward only is none of these.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from kcontract.dynamic import inputs as sets
from kcontract.dynamic import oracle
from kcontract.dynamic.gates.answers import sentence
from kcontract.dynamic.gates.bench import Bench, Found, Trial
from kcontract.dynamic.inputs import Role, Sample, Spec, build
from kcontract.dynamic.oracle import Bounded, Expected
from kcontract.dynamic.sandbox.candidate import Answer, Output
from kcontract.model import Determinism, Status

GATE = "CMP-02"
_FORWARD = "with gradients its forward"
#: Sizes at which the reference's own gradients are held against finite differences.
_TINY = 3
#: Upstream gradients as what follows leaves them: of a transposed or sliced result, of a sum (one value for all).
LAYOUTS = ("strided", "expanded")


def check(bench: Bench) -> Found:
    """Every gradient within the oracle's bound; a missing one fails, and so do two backwards that differ in bits
    unless the contract's determinism is ``bounded``. NOT_APPLICABLE where the reference's own gradients are wrong."""
    if found := bench.barred(GATE):
        return found
    asked = any(a.requires_grad for a in bench.spec.arguments) or bool(bench.problem.origin.get("gradients"))
    spec = bench.spec if any(a.requires_grad for a in bench.spec.arguments) else _requiring(bench.spec)
    make = sets.thorough if bench.thorough else sets.sample
    samples = list(make(GATE, spec, bench.seed))
    right = bench.expected(samples[0], grads=True)
    if isinstance(right, str):
        return Found(bench.said(GATE, Status.NOT_APPLICABLE, right))
    carries = _carrying(bench, samples[0])
    answer = _backward(bench, samples[0], right, carries)
    if (
        not asked
        and (_declines(bench, answer) or not _defines(answer))
        and not _complete(bench, samples[0], right, answer)
    ):
        reason = "forward only: no input asks for a gradient, and its results carry none, or not all"
        return Found(bench.said(GATE, Status.NOT_APPLICABLE, reason))
    if reason := _unfit(bench, spec):
        return Found(bench.said(GATE, Status.NOT_APPLICABLE, reason))
    odd = spec.with_dims({name: size + 1 for name, size in spec.dims.items()})
    trials = [_trial(bench, samples[0], carries, answer)]
    if bench.admits(odd.dims):  # a backward may drop the last, partial block; a forward that does is CMP-03's
        sample = Sample(GATE, "all sizes + 1", bench.seed, build(odd, bench.seed), odd.dims)
        trial = _trial(bench, sample, carries)
        trials.append(replace(trial, judged=trial.judged and not trial.reason.startswith(_FORWARD)))
    rest = (_trial(bench, s, carries, None, layout) for s, layout in zip(samples[1:], itertools.cycle(LAYOUTS)))
    return bench.verdict(GATE, itertools.chain(trials, rest))


def _requiring(spec: Spec) -> Spec:
    """The spec with every floating argument marked as requiring a gradient."""
    floating = (Role.DATA, Role.PARAMETER)
    return replace(spec, arguments=tuple(replace(a, requires_grad=a.role in floating) for a in spec.arguments))


def _laid(upstream: Any, layout: str) -> Any:
    """An upstream gradient in a layout: the same values strided, or one of them for all elements."""
    if layout == "expanded" and upstream.numel():
        return upstream.reshape(-1)[0].expand(upstream.shape)
    if layout == "strided" and upstream.dim() > 1:
        return upstream.transpose(0, -1).contiguous().transpose(0, -1)
    if layout == "strided" and upstream.dim():
        return torch.stack([upstream, upstream * -3], -1)[..., 0]
    return upstream


def _backward(bench: Bench, sample: Sample, right: Expected, carries: Sequence[bool], layout: str = "") -> Answer:
    """The candidate's answer with the gradients of two backwards through one graph."""
    given = (_laid(u, layout) for u in right.upstream)
    outputs = [o for o in right.outputs if o.value.is_floating_point()]
    upstream = [
        next(given) if carried else torch.zeros(o.value.shape, dtype=o.dtype)
        for o, carried in zip(outputs, carries, strict=True)
    ]
    return bench.answer(sample, upstream=upstream, twice=True)


def _carrying(bench: Bench, sample: Sample) -> list[bool]:
    """Which floating outputs of the reference depend on something that requires a gradient."""
    values = [
        v.detach().clone().to(bench.device).requires_grad_(v.requires_grad) if isinstance(v, torch.Tensor) else v
        for v in sample.inputs
    ]
    with torch.enable_grad():
        outputs = oracle.outputs_of(bench.reference(bench.dtype)(*values))
    return [o.requires_grad for o in outputs if o.is_floating_point()]


def _defines(answer: Answer) -> bool:
    """Whether the candidate has a backward of its own."""
    return bool(answer.nodes) or (answer.failure is not None and answer.failure.stage == "backward")


def _declines(bench: Bench, answer: Answer) -> bool:
    """Whether a contract asks for no gradient, and the backward says that it is not implemented."""
    failure = answer.failure
    return bench.problem.origin.get("gradients") is False and (
        failure is not None and failure.stage == "backward" and failure.exception == "NotImplementedError"
    )


def _complete(bench: Bench, sample: Sample, right: Expected, answer: Answer) -> bool:
    """Whether every gradient that is not nothing came back."""
    pairs = list(_paired(bench, sample, right, answer.grads[0] if answer.grads else ()))
    return bool(pairs) and all(found is not None or _nothing(expected) for _, found, expected in pairs)


def _nothing(expected: Bounded) -> bool:
    return not bool(expected.value.any()) and not bool(expected.bound.any())


def _unfit(bench: Bench, spec: Spec) -> str:
    """Why the reference's own gradients can judge nothing: they disagree with its finite differences in float64."""
    tiny = spec.with_dims({name: min(size, _TINY) for name, size in spec.dims.items()})
    for sizes in (tiny, spec):
        inputs = build(sizes, bench.seed)
        if sum(v.numel() for v in inputs if isinstance(v, torch.Tensor)) > 1 << 16:
            continue
        try:
            return "" if _differentiates(bench, inputs) else "the reference's gradient is not that of its finite steps"
        except Exception:
            continue
    return ""


def _differentiates(bench: Bench, inputs: Sequence[Any]) -> bool:
    reference = bench.master
    if isinstance(reference, torch.nn.Module):
        reference = copy.deepcopy(reference).double()
    values = [v.detach().double() if isinstance(v, torch.Tensor) and v.is_floating_point() else v for v in inputs]
    places = [k for k, v in enumerate(inputs) if isinstance(v, torch.Tensor) and v.requires_grad]

    def call(*varied: Any) -> list[Any]:
        given = list(values)
        for place, value in zip(places, varied, strict=True):
            given[place] = value
        return tuple(o for o in oracle.outputs_of(reference(*given)) if o.requires_grad)  # type: ignore[return-value]

    varied = [values[place].clone().requires_grad_() for place in places]
    return bool(torch.autograd.gradcheck(call, varied, fast_mode=True, raise_exception=False, atol=1e-4, rtol=1e-3))


def _trial(
    bench: Bench, sample: Sample, carries: Sequence[bool], answer: Answer | None = None, layout: str = ""
) -> Trial:
    """One sample; where it fails for the layout of its upstream gradients alone, that is said."""
    right = bench.expected(sample, grads=True)
    if layout == "expanded" and not isinstance(right, str):
        right = bench.expected(sample, grads=[_laid(u, layout).contiguous() for u in right.upstream])
    if isinstance(right, str):
        return Trial(sample, right, judged=False)
    trial = _judged(bench, sample, right, answer or _backward(bench, sample, right, carries, layout))
    if layout and trial.reason and not _judged(bench, sample, right, _backward(bench, sample, right, carries)).reason:
        return replace(trial, reason=f"with {layout} upstream gradients, {trial.reason}")
    return trial


def _judged(bench: Bench, sample: Sample, right: Expected, answer: Answer) -> Trial:
    if answer.failure is not None:
        return Trial(sample, f"{_FORWARD} fails: {answer.failure}")
    forward = bench.judge(sample, answer, right)
    if forward.reason:
        return replace(forward, reason=f"{_FORWARD} is wrong: {forward.reason}")
    for order, grads in zip(("first", "second"), answer.grads, strict=False):
        for name, found, expected in _paired(bench, sample, right, grads):
            if found is None:
                if not _nothing(expected):
                    return Trial(sample, f"the gradient of {name} is None")
                continue
            if found.value is None:
                return Trial(sample, f"the gradient of {name} is a {found.kind} on {found.device}")
            worst = oracle.compare(found.value.to(bench.device), expected, bench.policy, right.model.lam)
            if not worst.ok:
                named = replace(worst, output=f"the gradient of {name}")
                second = ", in the second backward of one graph" if order == "second" else ""
                return Trial(sample, sentence(named) + second, named)
    if bench.contract.determinism is not Determinism.BOUNDED and (name := _differing(bench, sample, right, answer)):
        return Trial(sample, f"two backwards of one graph give other bits for the gradient of {name}")
    return Trial(sample)


def _paired(
    bench: Bench, sample: Sample, right: Expected, grads: Sequence[Output | None]
) -> Iterator[tuple[str, Output | None, Bounded]]:
    """Each expected gradient with the candidate's: inputs in order, parameters by name, or else in order."""
    inputs = [name for name in right.grads if name.startswith("input ")]
    parameters = [name for name in right.grads if not name.startswith("input ")]
    tensors = [a.name for a, v in zip(bench.spec.arguments, sample.inputs, strict=True) if isinstance(v, torch.Tensor)]
    for name, found in zip(inputs, grads[: len(inputs)], strict=False):
        yield tensors[int(name.removeprefix("input "))], found, right.grads[name]
    own = bench.candidate.parameters
    rest = dict(zip(own, grads[len(inputs) :], strict=False))
    if set(parameters) <= set(own):
        pairs = [(name, rest.get(name)) for name in parameters]
    elif len(own) == len(parameters) and not bench.candidate.unset and bench.master is not bench.plain:
        pairs = list(zip(parameters, rest.values(), strict=False))
    else:
        pairs = []
    for name, found in pairs:
        yield name, found, right.grads[name]


def _differing(bench: Bench, sample: Sample, right: Expected, answer: Answer) -> str:
    """The first gradient whose bytes differ between two backwards."""
    if len(answer.grads) < 2:
        return ""
    first, second = (list(_paired(bench, sample, right, grads)) for grads in answer.grads[:2])
    for (name, a, _), (_, b, _) in zip(first, second, strict=True):
        if a is not None and b is not None and not _same_bits(a.value, b.value):
            return name
    return ""


def _same_bits(a: Any, b: Any) -> bool:
    bits = [t.contiguous().view(-1).view(torch.uint8) for t in (a, b)]
    return bool(torch.equal(*bits))
