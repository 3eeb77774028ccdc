"""Seeded inputs for each gate: a small ``sample`` set and a ``thorough`` one. Importing it imports torch."""

from __future__ import annotations

from kcontract.dynamic.inputs.generators import draw, kinds
from kcontract.dynamic.inputs.lattice import Probe, probe
from kcontract.dynamic.inputs.nonfinite import placements
from kcontract.dynamic.inputs.sets import Build, build, sample, thorough
from kcontract.dynamic.inputs.shapes import boundary_shapes, boundary_sizes, resized, strided_views
from kcontract.dynamic.inputs.spec import Argument, Role, Sample, Spec

__all__ = [
    "Argument",
    "Build",
    "Probe",
    "Role",
    "Sample",
    "Spec",
    "boundary_shapes",
    "boundary_sizes",
    "build",
    "draw",
    "kinds",
    "placements",
    "probe",
    "resized",
    "sample",
    "strided_views",
    "thorough",
]
