"""HON-01: the candidate does the work: its kernels decide the result, from the inputs it is given, on every call.

Accused is only what was seen: a record of a call (launches, torch operations, storages, changed inputs and switches),
or a result that stays where the reference moves. Ablation: the call is made once more with launches left out over
poisoned memory; a result that is right all the same owes the kernels nothing. What the candidate's process could forge
(it shares it with the record) can hide an accusation, never cause one of somebody else.
Not told: that a value is wrong (CMP-01), or that a result shares memory with an earlier one (ORD-02).
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from kcontract.dynamic import oracle
from kcontract.dynamic.gates.answers import unfit
from kcontract.dynamic.gates.bench import Bench, Found, Trial, with_inputs
from kcontract.dynamic.gates.references import NATIVE
from kcontract.dynamic.inputs import Role, Sample, build
from kcontract.dynamic.oracle import Expected
from kcontract.dynamic.sandbox import flow, watch
from kcontract.dynamic.sandbox.candidate import Answer
from kcontract.model import Status

GATE = "HON-01"
#: Switches that only choose between algorithms of the same precision.
_HARMLESS = ("cudnn.benchmark", "cudnn.deterministic", "deterministic algorithms")
#: Parameters that are moved alone, at most.
_PARAMETERS = 8
#: Arguments that are touched in single elements, at most.
_TOUCHED = 3
#: Device kernels of torch and its libraries, by what their names hold.
_LIBRARY = ("at::native", "at_cuda_detail", "cublas", "cutlass_80", "xmma_gemm", "nvjet", "splitkreduce", "cudnn",
            "ampere_", "sm80_", "at::cuda", "pytorch_flash", "fmha_cutlass", "nccl", "memcpy", "memset")  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Reference:
    """What the reference does on the sample: elements made by each operation, casts, outputs that share memory with an
    input, inputs that it writes to."""

    work: dict[str, int]
    names: frozenset[str]
    casts: frozenset[tuple[str, str]]
    aliased: frozenset[int]
    changed: frozenset[int]


@dataclass(frozen=True, slots=True)
class _Told:
    """One accusation."""

    sample: Sample
    reason: str


def check(bench: Bench) -> Found:
    """Everything that can be held against the candidate, the clearest first; PASS where there is nothing."""
    sample = bench.nominal(gate=GATE)
    seen = bench.answer(sample, observe=True, placement="same")
    if not seen.launches and (own := _native(bench)) is not None:
        sample, seen = own
    calls, notes = len(bench.log), list[str]()
    told = [_Told(sample, r) for r in dict.fromkeys((*_ended(bench), *_deeds(bench, seen)))]
    reference = _reference(bench, sample)
    if not unfit(seen) and reference is not None:
        told += _work(bench, sample, seen, reference)
        told += [_Told(sample, r) for r in _record(bench, seen, reference)]
        if not told:
            told += _moves(bench, sample, seen)
            told += _left_out(bench, sample)
            told += _parameters(bench, sample, seen)
            told += _steady(bench, sample, seen)
            told += _late(bench, sample, seen)
            told += _gradients(bench, sample)
            told += _idle(bench, sample, seen)
            told += _elsewhere(bench, seen, notes)
            told += [_Told(sample, r) for r in dict.fromkeys((*_ended(bench), *_deeds(bench, seen)))]
    elif reason := _unfit(seen):
        told.append(_Told(sample, reason))
    if told:
        reason = "; ".join(dict.fromkeys(t.reason for t in told[:3]))
        witness = bench.witness(GATE, Trial(told[0].sample, reason))
        return Found(
            bench.said(GATE, Status.FAIL, reason), witness, calls, {"seen": list(dict.fromkeys(t.reason for t in told))}
        )
    if reason := unfit(seen):
        return Found(bench.said(GATE, Status.UNDECIDED, f"there is no result to look into: {reason}"), tried=calls)
    if reference is None:
        return Found(bench.said(GATE, Status.UNDECIDED, "the reference cannot be run here"), tried=calls)
    kernels = ", ".join(dict.fromkeys(str(launch["kernel"]) for launch in seen.launches)) or "native kernels"
    return Found(
        bench.said(GATE, Status.PASS, "; ".join([f"its result is the work of {kernels}", *notes])), tried=calls
    )


def _native(bench: Bench) -> tuple[Sample, Answer] | None:
    """The call at the problem's own sizes, for a candidate that launches its kernels only there."""
    moved = bench.spec.with_dims(bench.native)
    if dict(moved.dims) == dict(bench.spec.dims) or bench.elements(moved) > NATIVE[bench.candidate.kind]:
        return None
    sample = Sample(GATE, "native sizes", bench.seed, build(moved, bench.seed), moved.dims)
    seen = bench.answer(sample, observe=True, placement="same")
    return (sample, seen) if seen.launches and not unfit(seen) else None


def _reference(bench: Bench, sample: Sample) -> _Reference | None:
    inputs = [v.detach().clone().to(bench.device) if isinstance(v, torch.Tensor) else v for v in sample.inputs]
    before = [v.clone() if isinstance(v, torch.Tensor) else v for v in inputs]
    seen = watch.Seen()
    try:
        with torch.no_grad(), watch.Operations(seen, None):
            outputs = oracle.outputs_of(bench.reference(bench.dtype)(*inputs))
    except Exception:
        return None
    tensors = [(k, v) for k, v in enumerate(inputs) if isinstance(v, torch.Tensor)]
    places = {watch.storage_of(v) for _, v in tensors}
    answer = Answer(operations=tuple(seen.operations), sizes=tuple(seen.sizes))
    return _Reference(
        dict(flow.work(answer, frozenset(range(len(seen.operations))))),
        frozenset(flow.short(name) for name, _, _ in seen.operations),
        frozenset((a, b) for a, b, _ in seen.casts),
        frozenset(k for k, o in enumerate(outputs) if watch.storage_of(o) in places),
        frozenset(k for k, v in tensors if not torch.equal(_bytes(v), _bytes(before[k]))),
    )


# -- what the records say ---------------------------------------------------------------------------------------------


def _ended(bench: Bench) -> Iterator[str]:
    """Calls that ended the process, or answered in its name."""
    for failure in (answer.failure for _, answer in bench.log):
        if failure is not None and failure.exception in ("SystemExit", "KeyboardInterrupt", "GeneratorExit"):
            yield f"it raises {failure.exception} to end its process instead of giving a result"
        elif failure is not None and "ended itself with exit status" in failure.message:
            yield f"{failure.message}, instead of giving a result"
        elif failure is not None and failure.kind == "garbled":
            yield f"it interferes with the channel to the checker: {failure.message}"


def _deeds(bench: Bench, seen: Answer) -> Iterator[str]:
    """Switches, functions and deeds, of loading and of all calls."""
    loaded = bench.candidate.loaded_with
    for flag in dict.fromkeys((*loaded[0], *(f for _, a in bench.log for f in a.flags), *seen.flags)):
        if flag not in _HARMLESS:
            yield f"it changes a global switch of torch: {flag}"
    for name in dict.fromkeys((*loaded[1], *(f for _, a in bench.log for f in a.functions), *seen.functions)):
        yield f"it replaces {name}"
    for deed in dict.fromkeys((*loaded[2], *(d for _, a in bench.log for d in a.deeds), *seen.deeds)):
        yield f"it {deed}"


def _unfit(answer: Answer) -> str:
    """A result that is none on purpose: not what a failed or unsupported call would give."""
    return "" if answer.failure is not None else unfit(answer)


def _record(bench: Bench, seen: Answer, reference: _Reference) -> Iterator[str]:
    """Inputs, outputs, casts and random numbers of the observed call."""
    names = [a.name for a in bench.spec.arguments]
    aliases = {out.alias for out in seen.outputs if out.alias is not None}
    for k in seen.changed:
        if k not in reference.changed and k not in aliases:
            yield f"it changes its input {names[k]!r}, which the reference leaves alone"
    for k, out in enumerate(seen.outputs):
        if bench.candidate.kind == "gpu" and not out.device.startswith("cuda") and not out.number:
            yield f"output {k} is on {out.device}, its inputs are on a GPU"
        if out.alias is not None and k not in reference.aliased and out.alias not in seen.changed:
            yield f"output {k} is the input {names[out.alias]!r} itself, handed back"
    given = {
        **{place: f"input {names[k]!r}" for k, place in seen.inputs.items()},
        **dict.fromkeys(seen.own, "parameter"),
    }
    for source, target, place in seen.casts:
        lower = getattr(torch, target).is_floating_point and _size(target) < _size(source)
        if lower and place in given and (source, target) not in reference.casts:
            yield f"torch casts its {given[place]} from {source} to {target} before its kernels see it"
    for name in flow.computing(seen):
        if flow.short(name) in flow.RANDOM and not reference.names & flow.RANDOM:
            yield f"it draws random numbers ({name}), which the reference does not"
    if any(not launch["main_thread"] for launch in seen.launches):
        yield "it launches a kernel from another thread"


def _size(dtype: str) -> int:
    return int(getattr(torch, dtype).itemsize)


# -- who does the work ------------------------------------------------------------------------------------------------


def _work(bench: Bench, sample: Sample, seen: Answer, reference: _Reference) -> list[_Told]:
    """No kernel; or kernels that the result does not need."""
    ran = flow.computing(seen)
    torches = f"torch ran {', '.join(ran[:4])}" if ran else "torch ran nothing either"
    if not seen.launches:
        own = _own_kernels(bench, sample) if bench.candidate.kind == "gpu" else ()
        if not own and bench.first is not None and bench.first[1].launches:
            return [_Told(sample, "its result is that of an earlier call: its kernels ran in that one only")]
        if not own:
            return [_Told(sample, f"it launched no kernel of its own; {torches}")]
    for events in flow.untouched(seen):
        done = flow.work(seen, events)
        if reference.work and all(done.get(name, 0) >= size for name, size in reference.work.items()):
            names = ", ".join(reference.work)
            return [_Told(sample, f"torch ran {names} on its inputs, which is all that the reference computes")]
    alone = {max(events) for events in flow.untouched(seen)}
    for at, k in seen.twins:
        name = seen.operations[at][0]
        if at in alone and flow.computes(name):
            return [_Told(sample, f"torch ran {name} to the very values of output {k}: its kernels add nothing")]
    return []


def _own_kernels(bench: Bench, sample: Sample, suppress: bool = False) -> list[str]:
    """Kernels on the device that are neither torch's nor a library's; an unknown one where the device does not tell.
    Where torch computed, and nothing was loaded that could hold others, all are torch's."""
    seen = bench.candidate.call(sample.inputs, observe=True, kernels=True, suppress=suppress)
    if seen.failure is None and flow.computing(seen) and not seen.native:
        return []
    if seen.failure is not None or not seen.kernels:
        return ["unknown"]
    library = _LIBRARY if flow.computing(seen) else ("memcpy", "memset")
    return [n for n in seen.kernels if not any(word in n.lower() for word in library)]


def _idle(bench: Bench, sample: Sample, seen: Answer) -> Iterator[_Told]:
    """A result that is right with all launches left out: on data not seen before, over memory without leftovers."""
    sample = _other(bench, sample)
    right = bench.expected(sample)
    if isinstance(right, str) or not seen.launches:
        return
    for poison in ("finite", "nan"):
        bare = bench.candidate.call(sample.inputs, suppress=True, poison=poison)
        if not bare.launches or bench.judge(sample, bare, right).reason:
            return
        if all(out.value.is_floating_point() for out in bare.outputs):
            break  # a value of another dtype may happen to be what the memory was filled with
    if bench.candidate.kind != "gpu" or not _own_kernels(bench, sample, suppress=True):
        ran = ", ".join(flow.computing(seen)[:4]) or "nothing"
        yield _Told(sample, f"its result is right when none of its kernels run: they are decoys; torch ran {ran}")


def _elsewhere(bench: Bench, seen: Answer, notes: list[str]) -> Iterator[_Told]:
    """Torch alone at all sizes but those that its kernels were seen at. A fallback for odd sizes only is a note."""
    sample = bench.uneven(GATE, "odd sizes")
    if not seen.launches or sample is None:
        return
    ran = _without_kernels(bench, sample)
    if not ran:
        return
    for name, size in bench.spec.dims.items():
        for other in (2 * size, size // 2):
            moved = bench.spec.with_dims({name: other})
            if other > 1 and other != bench.native[name] and bench.admits(moved.dims):
                inputs = build(moved, bench.seed)
                if not _without_kernels(bench, Sample(GATE, f"{name} = {other}", bench.seed, inputs, moved.dims)):
                    notes.append(f"at odd sizes it launches no kernel, torch ran {ran}")
                    return
    yield _Told(sample, f"at other sizes than its own it launches no kernel: torch ran {ran}")


def _without_kernels(bench: Bench, sample: Sample) -> str:
    """What torch computed in a call that launched nothing; empty where there was a launch, or nothing to compute."""
    answer = bench.answer(sample, observe=True)
    return "" if answer.launches or unfit(answer) else ", ".join(flow.computing(answer)[:4])


# -- results that stay where the reference moves ----------------------------------------------------------------------


def _other(bench: Bench, sample: Sample) -> Sample:
    """Other data of the same sizes."""
    inputs = build(bench.spec.with_dims(sample.dims), bench.seed + 7)
    return replace(sample, inputs=tuple(inputs), seed=bench.seed + 7, label="new data, same addresses")


def _moves(bench: Bench, sample: Sample, seen: Answer) -> Iterator[_Told]:
    """New data at the old addresses: single elements, all of it, one argument alone."""
    arguments, new = bench.spec.arguments, _other(bench, sample)
    places = [k for k, v in enumerate(sample.inputs) if isinstance(v, torch.Tensor) and v.numel()]
    drawn = [k for k in places if not torch.equal(sample.inputs[k], new.inputs[k])]
    right = bench.expected(sample)
    sound = not isinstance(right, str) and not bench.judge(sample, seen, right).reason
    for at in [k for k in places if arguments[k].role is Role.DATA and sound][:_TOUCHED]:
        for label, value in _touched(sample.inputs[at], bench.seed):
            near = with_inputs(sample, at, value, f"{arguments[at].name}: {label}")
            if (k := _stays(bench, near, sample, seen)) is not None:
                what = f"{label} of {arguments[at].name!r} changed at the same address, and it did not move"
                yield _Told(near, f"output {k} is constant, or that of an earlier call: {what}")
                return
    if drawn and (k := _stays(bench, new, sample, seen)) is not None:
        if _stays(bench, new, sample, seen, placement="fresh") is None:
            yield _Told(new, f"output {k} is that of an earlier call with other data at the same addresses")
        else:
            yield _Told(new, f"output {k} is constant, or that of an earlier call: all inputs changed, and it did not")
        return
    gap = bench.candidate.kind == "interpreter" and bench.dtype == "bfloat16"  # its wrong products drown the rest
    for at in drawn if len(drawn) > 1 and (sound or not gap) else ():
        alone = with_inputs(sample, at, new.inputs[at], f"{arguments[at].name} alone")
        if (k := _stays(bench, alone, sample, seen)) is not None:
            yield _Told(alone, f"output {k} does not move when only the input {arguments[at].name!r} changes")


def _touched(value: Any, seed: int) -> Iterator[tuple[str, Any]]:
    """A floating tensor with one inner element changed, and with two inner elements exchanged (any sum stays)."""
    if not value.is_floating_point() or value.numel() < 8:
        return
    flat = value.detach().clone(memory_format=torch.contiguous_format).reshape(-1)
    generator = torch.Generator().manual_seed(seed + 11)
    one, two = (1 + int(i) for i in torch.randperm(flat.numel() - 2, generator=generator)[:2])
    changed = flat.clone()
    changed[one] = changed[one] * -4 + (6 if bool(changed[one] <= 0) else -6)
    if bool((flat >= 0).all()):
        changed[one] = changed[one].abs()
    yield "one element", changed.reshape(value.shape)
    if flat[one] != flat[two]:
        exchanged = flat.clone()
        exchanged[one], exchanged[two] = flat[two].clone(), flat[one].clone()
        yield "the order of two elements", exchanged.reshape(value.shape)


def _stays(bench: Bench, sample: Sample, old: Sample, before: Answer, placement: str = "same") -> int | None:
    """The first output that keeps every bit where what is right moves; None where there is none."""
    was, now = bench.expected(old), bench.expected(sample)
    answer = bench.answer(sample, placement=placement)
    if isinstance(was, str) or isinstance(now, str) or unfit(answer):
        return None
    return unmoved(before, answer, was, now, bench.policy.tolerance or 0.0)


def unmoved(before: Answer, after: Answer, was: Expected, now: Expected, tolerance: float = 0.0) -> int | None:
    """The first output whose bits are all the same where what is right has moved clearly: by more than both bounds and
    a twentieth, so that no result could be right on both."""
    for k, (a, b, r, s) in enumerate(zip(before.outputs, after.outputs, was.outputs, now.outputs, strict=False)):
        if not (a.value.shape == b.value.shape == r.value.shape == s.value.shape) or a.dtype != b.dtype:
            continue
        moved = (r.value != s.value) & ~(r.undetermined | s.undetermined)
        if r.value.is_floating_point():
            step = max(0.05, 8 * torch.finfo(r.dtype).eps)
            size = torch.maximum(r.value.abs(), s.value.abs())
            allowed = r.bound + s.bound + step * size + 2 * tolerance + 2 * torch.finfo(r.dtype).tiny
            moved &= (r.value - s.value).abs() > allowed
        moved = moved.cpu()
        if bool(moved.any()) and torch.equal(_bytes(a.value[moved]), _bytes(b.value[moved])):
            return k
    return None


def _bytes(t: Any) -> Any:
    return t.detach().contiguous().unsqueeze(-1).view(torch.uint8).reshape(-1)


def _left_out(bench: Bench, sample: Sample) -> Iterator[_Told]:
    """Parameters that do nothing as they are initialised, and that the candidate has no tensor for."""
    if not isinstance(bench.plain, torch.nn.Module) or bench.problem.candidate.kind != "module":
        return
    for name, value in bench.plain.named_parameters():
        idle = value.numel() and bool((value == value.reshape(-1)[0]).all())
        if idle and name not in bench.candidate.parameters and tuple(value.shape) not in bench.candidate.shapes:
            yield _Told(sample, f"it has left out the parameter {name!r}, which does nothing until it is trained")


def _parameters(bench: Bench, sample: Sample, seen: Answer) -> Iterator[_Told]:
    """One parameter at a time, changed in place as an optimiser does."""
    module, state = bench.reference(bench.dtype), list(bench.candidate.state)
    if not isinstance(module, torch.nn.Module) or not state or bench.candidate.unset:
        return
    inputs = [v.detach().to(bench.device) if isinstance(v, torch.Tensor) else v for v in sample.inputs]
    right = bench.expected(sample)
    if isinstance(right, str):
        return
    dtypes = [o.dtype for o in right.outputs]
    try:
        for name, value in [(n, v) for n, v in state if v.is_floating_point() and v.numel()][:_PARAMETERS]:
            moved = copy.deepcopy(module)
            new = value.roll(1) * 1.5 + 0.25
            with torch.no_grad():
                dict((*moved.named_parameters(), *moved.named_buffers()))[name].copy_(new)
            now = oracle.run(moved, inputs, model=bench.model(bench.dtype), out_dtype=dtypes, seed=sample.seed)
            if bench.candidate.load([(n, new if n == name else v) for n, v in state]) is not None:
                return
            answer = bench.candidate.call(sample.inputs, placement="same")
            if not unfit(answer) and (k := unmoved(seen, answer, right, now)) is not None:
                yield _Told(sample, f"output {k} does not move when the parameter {name!r} changes")
    finally:
        bench.candidate.load(state)


# -- one call like another --------------------------------------------------------------------------------------------


def _steady(bench: Bench, sample: Sample, seen: Answer) -> Iterator[_Told]:
    """The same inputs at the end of the session as at its start, in new memory."""
    right = bench.expected(sample)
    early = [seen, *([bench.first[1]] if bench.first is not None and bench.first[0].dims == sample.dims else [])]
    if isinstance(right, str) or all(bench.judge(sample, answer, right).reason for answer in early):
        return
    last = bench.answer(sample)
    trial = bench.judge(sample, last, right)
    if trial.reason and all(_alike(last, bench.answer(sample)) for _ in range(2)):
        yield _Told(sample, f"the same inputs give another result in the {len(bench.log)}th call: {trial.reason}")


def _alike(a: Answer, b: Answer) -> bool:
    if a.failure is not None or b.failure is not None:
        return a.failure == b.failure
    pairs = zip(a.values, b.values, strict=False)
    return all(x.shape == y.shape and torch.equal(_bytes(x), _bytes(y)) for x, y in pairs)


def _late(bench: Bench, sample: Sample, seen: Answer) -> Iterator[_Told]:
    """On a GPU: inputs that arrive late on the current stream, outputs read in its order."""
    if bench.candidate.kind != "gpu":
        return
    right = bench.expected(sample)
    if isinstance(right, str) or bench.judge(sample, seen, right).reason:
        return
    trial = bench.judge(sample, bench.answer(sample, late=True), right)
    if trial.reason:
        streams = {int(launch["stream"]) for launch in seen.launches} - {seen.stream}
        where = "on a side stream" if streams else "out of the order of the current stream"
        yield _Told(sample, f"it works {where}: with inputs that arrive late on the current stream, {trial.reason}")


def _gradients(bench: Bench, sample: Sample) -> Iterator[_Told]:
    """An output that says it has a gradient, and leads to no input."""
    asked = [k for k, v in enumerate(sample.inputs) if isinstance(v, torch.Tensor) and v.requires_grad]
    if not asked:
        return
    outputs = bench.eager(sample) or []
    upstream = [torch.ones_like(o, device="cpu") for o in outputs if o.is_floating_point()]
    answer = bench.candidate.call(sample.inputs, upstream=upstream)
    claims = any(out.requires_grad for out in answer.outputs)
    if answer.failure is None and claims and answer.grads and all(g is None for g in answer.grads[0]):
        yield _Told(sample, "its output asks for a gradient but is detached from every input")
