"""Rules that answer by the kernel's name, so that the hook is tested apart from the rules it runs."""

from __future__ import annotations

import os
from collections.abc import Iterator

from kcontract.ir.artifact import Artifact
from kcontract.model import Confidence, Finding, Level, Place, Settled
from kcontract.passes import base


class ByName(base.Rule):
    """Fires by name."""

    slug, gate, since = "by-name", "PRC-02", "0.1"

    def check(self, artifact: Artifact, facts: base.Facts) -> Iterator[Finding | Settled]:
        place = Place(ir="ttgir")
        if "violation" in artifact.kernel:
            yield Finding(self.slug, self.gate, Level.VIOLATION, "found a violation, wanted none", place)
        if "guess" in artifact.kernel:
            yield Finding(self.slug, self.gate, Level.VIOLATION, "found a guess", place, Confidence.INFERRED)
        if "hazard" in artifact.kernel or os.environ["FAKE_RULES"] == "every":
            had = {part: bool(getattr(artifact, part)) for part in ("ttgir", "ptx", "cubin")}
            yield Finding(self.slug, self.gate, Level.HAZARD, "found a hazard, wanted none", place, evidence=had)
        if "note" in artifact.kernel:
            yield Finding(self.slug, self.gate, Level.NOTE, "found a note, wanted none", place)
        if "defect" in artifact.kernel:
            raise RecursionError("a defect of the rule")
        if "interrupt" in artifact.kernel:
            raise KeyboardInterrupt
        yield Settled(self.gate, "accumulators", "ttgir", f"{len(artifact.ttgir or '') > 0}")


class Misfit(base.Rule):
    """Fires on 8 warps of a kernel named misfit."""

    slug, gate, since = "misfit", "RES-02", "0.1"

    def check(self, artifact: Artifact, facts: base.Facts) -> Iterator[Finding | Settled]:
        if "misfit" in artifact.kernel and artifact.metadata["num_warps"] == 8:
            yield Finding(self.slug, self.gate, Level.VIOLATION, "found 8 warps, at most 4 fit", Place(ir="metadata"))


base.rules = lambda: (ByName(), Misfit())  # type: ignore[assignment]
