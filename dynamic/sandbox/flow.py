"""Follows values through the record of one call: which torch operations have worked on data that no kernel has touched.

Why: a candidate that launches a kernel may still have torch do the work and let the kernel copy the result. Storages
are followed from the arguments and parameters on; one that a launch was given is the kernels' from there on, and so is
what is made of it. Arguments and parameters stay what they are: a kernel reads those. Where an operation works in place
on a kernel's storage the result counts as the kernels', which errs in the candidate's favour.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from kcontract.dynamic.sandbox.answer import Answer

#: aten operations that only name, move, allocate or fill memory: none of them computes, or rounds.
_PASSIVE = frozenset(
    "view _unsafe_view reshape permute transpose t expand slice select unsqueeze squeeze as_strided detach alias clone "
    "copy_ _to_copy contiguous empty zeros ones full fill_ zero_ empty_like zeros_like ones_like full_like new_empty "
    "new_zeros split unbind chunk arange scalar_tensor lift_fresh _reshape_alias new_full new_ones unfold set_ "
    "_local_scalar_dense split_with_sizes resize_ cat stack constant_pad_nd narrow movedim".split()
)
RANDOM = frozenset(
    "rand randn rand_like randn_like randint randint_like normal normal_ uniform_ random_ bernoulli bernoulli_ "
    "native_dropout exponential_ multinomial randperm".split()
)

#: Operations that are one another under another name.
_ALIKE = dict.fromkeys(("mm", "bmm", "addmm", "baddbmm", "mv", "addmv", "dot", "linear", "matmul"), "a matrix product")


def short(name: str) -> str:
    """``softmax`` of ``aten::softmax``."""
    return name.rpartition("::")[2]


def computes(name: str) -> bool:
    """Whether an aten operation makes values that were not there before."""
    return short(name) not in _PASSIVE


def computing(answer: Answer) -> list[str]:
    """Names of the operations of a call that compute, each once, in order."""
    return list(dict.fromkeys(name for name, _, _ in answer.operations if computes(name)))


def work(answer: Answer, events: frozenset[int]) -> Mapping[str, int]:
    """Elements made by each computing operation among ``events`` (places in ``answer.operations``)."""
    total: Counter[str] = Counter()
    for at in events:
        name = answer.operations[at][0]
        if computes(name):
            total[_ALIKE.get(short(name), name)] += answer.sizes[at]
    return total


def untouched(answer: Answer) -> Iterator[frozenset[int]]:
    """For each value that torch alone has made of the arguments: the operations that went into it."""
    fixed = set(answer.inputs.values()) | set(answer.own)
    history: dict[int, frozenset[int]] = {}
    of_kernels: set[int] = set()
    launches = sorted(answer.launches, key=lambda launch: int(launch["after"]))
    for at, (name, reads, makes) in enumerate(answer.operations):
        while launches and int(launches[0]["after"]) <= at:
            _launched(launches.pop(0), fixed, history, of_kernels)
        if name == "aten::empty":
            for place in makes:
                history.pop(place, None)
                of_kernels.discard(place)
        elif any(place in of_kernels for place in reads):
            of_kernels.update(place for place in makes if place not in fixed)
        else:
            events = frozenset({at}).union(*(history.get(place, frozenset()) for place in reads))
            for place in makes:
                history[place] = events
            yield events


def _launched(
    launch: Mapping[str, object], fixed: set[int], history: dict[int, frozenset[int]], of_kernels: set[int]
) -> None:
    pointers = launch["pointers"]
    assert isinstance(pointers, dict)
    for place in set(pointers.values()) - fixed:
        history.pop(place, None)
        of_kernels.add(place)
