"""The gates: one property each, with the static obligations that together prove it.

Ids of the twelve are those of arXiv 2608.12700. A gate passes statically when every obligation in
``Gate.static`` is settled; an obligation named ``run`` can only be settled by running the kernel.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Gate:
    """One property of a kernel. ``static`` lists what a static proof of it consists of."""

    id: str
    title: str
    promise: str
    static: tuple[str, ...]


_RUN = ("run",)

GATES: dict[str, Gate] = {
    g.id: g
    for g in (
        Gate("CMP-01", "right values", "right on random and adversarial inputs", _RUN),
        Gate("CMP-02", "right gradients", "gradients agree with the reference's", _RUN),
        Gate(
            "CMP-03", "right at other shapes", "right at other batch, length and width", ("bounds", "overflow", "run")
        ),
        Gate(
            "ORD-01",
            "bounded rounding",
            "reductions stay within the derived error bound",
            ("variance", "roundings", "run"),
        ),
        Gate(
            "ORD-02",
            "deterministic",
            "repeated runs give the same bytes and share no buffers",
            ("atomics", "readback", "run"),
        ),
        Gate(
            "ORD-03",
            "any order",
            "survives adversarial summation orders",
            ("combine", "partials", "decays", "run"),
        ),
        Gate("EXC-01", "NaN and Inf", "NaN and ±Inf exactly where the reference has them", ("slices", "run")),
        Gate("EXC-02", "subnormals", "subnormals treated as the reference treats them", ("flushes", "run")),
        Gate("PRC-01", "every dtype", "right in each dtype the reference takes", _RUN),
        Gate("PRC-02", "32-bit sums", "16-bit inputs keep a 32-bit sum", ("accumulators",)),
        Gate("RES-01", "right device", "output, launch and stream are on the input's device", _RUN),
        Gate(
            "RES-02",
            "fits the hardware",
            "the kernel fits the resources of its target",
            ("registers", "shared memory", "tensor memory", "threads", "cluster", "register pool"),
        ),
        Gate("CFG-01", "every configuration", "all autotune configurations agree within the bound", _RUN),
        Gate("MEM-01", "in bounds", "no out-of-bounds access", ("bounds", "run")),
        Gate(
            "SYN-01",
            "synchronised",
            "fences, waits and Tensor Memory lifecycle are complete",
            ("fences", "waits", "run"),
        ),
        Gate("HON-01", "honest", "the candidate itself does the work", _RUN),
        Gate("REF-01", "fit reference", "the reference is able to judge", _RUN),
    )
}

#: The tolerance-free core: on the published audit it catches 86 % of all violators (arXiv 2608.12700).
FLOOR = ("EXC-01", "ORD-02", "CMP-03", "CMP-01")


def gate(gate_id: str) -> Gate:
    """The gate of that id (any case). Raises ``KeyError`` with the known ids."""
    try:
        return GATES[gate_id.upper()]
    except KeyError:
        raise KeyError(f"no gate {gate_id!r}; the gates are {', '.join(GATES)}") from None
