"""Products of fp8 values summed in the short accumulator of Hopper's tensor cores (PRC-02)."""

from __future__ import annotations

from collections.abc import Iterator

from kcontract.ir.artifact import Artifact
from kcontract.model import Finding, Level, Settled
from kcontract.passes.analysis.accumulations import Ledger, imprecise_terms
from kcontract.passes.base import Facts, Rule


class ImpreciseFp8Accumulator(Rule):
    """Notes fp8 products whose sums stay in Hopper's tensor cores beyond their precision.

    ## Contract

    A sum of fp8 products is kept in 32 bits (gate PRC-02), or the contract knows that it is not.

    ## Why it matters

    On Hopper the tensor core adds fp8 products with far fewer than the 24 bits of float32, whatever the type of the
    accumulator. `max_num_imprecise_acc` bounds how many terms are added so before the partial sum is moved to
    ordinary registers; Triton's default of 2^30 never moves it.

    ## Fires on

    A note for each `tt.dot` or `warp_group_dot` on sm_90 with fp8 operands and more than 128 terms, or an unknown
    number of them, that are added in the tensor core before the partial sum is moved out. It leaves the gate
    undecided.

    ## Silent on

    Other targets (Blackwell adds fp8 products in float32), other operand types, and products for which
    `max_num_imprecise_acc` moves the partial sums out every 128 terms or sooner.

    ## Limits

    How many bits are kept is not published; 14 and 22 have both been measured. The note gives no error bound.

    ## Source

    deepseek-ai/DeepGEMM issue 37; triton-lang/triton PR 2300.
    """

    slug = "imprecise-fp8-accumulator"
    gate = "PRC-02"
    since = "0.1"

    def check(self, artifact: Artifact, facts: Facts) -> Iterator[Finding | Settled]:
        """One note a product."""
        if artifact.module is None:
            return
        for row in facts.get(Ledger).rows:
            if (limit := imprecise_terms(row, artifact.target)) is not None:
                bound = "never" if limit >= 2**24 else f"every {limit} terms"
                yield Finding(
                    self.slug,
                    self.gate,
                    Level.NOTE,
                    f"fp8 sum of {row.terms} terms kept in the tensor core ({bound} moved out), wanted float32",
                    row.place,
                    why="Hopper's tensor cores add fp8 products with fewer than 24 bits",
                    remedy="pass max_num_imprecise_acc=128 or less to tl.dot",
                    evidence={"limit": limit, "terms": [row.terms.low, row.terms.high], "inputs": row.inputs},
                )
