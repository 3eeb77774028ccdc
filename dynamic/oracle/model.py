"""Accumulation models: in what type, and in what order, an honest kernel is allowed to sum.

A model is chosen by the contract or by what the compiler's IR says, and is recorded with every verdict.
It holds figures only; the rules turn them into bounds.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, replace

from kcontract.dynamic.oracle.dtypes import FORMATS, DType, Format, form
from kcontract.errors import InputError
from kcontract.model import Accumulator, Contract

EXCHANGEABLE_LAMBDA = 8.0


class Order(str, enum.Enum):
    """``exchangeable``: any order the values do not conspire with (second moments, times lambda).

    ``worst``: any order at all (gamma_N of Higham, Accuracy and Stability, 2nd ed., section 4.2; lambda is 1).
    """

    EXCHANGEABLE = "exchangeable"
    WORST = "worst"


@dataclass(frozen=True, slots=True)
class Accumulation:
    """How sums are formed.

    ``u`` is the accumulator's unit roundoff and ``largest`` the largest intermediate it holds; ``eta`` the
    absolute error an operation may add by underflow (2^-126: subnormals may be flushed, 2^-150: they are kept).
    ``u_factor`` is the unit roundoff the factors of a product are first cut to (tf32), ``u_operand`` the one that
    computed factors are rounded to (a matrix unit takes 16-bit ones). ``block`` terms at a time are
    summed in ``u_block``; or the sum is split in ``parts`` whose results are rounded to and added in ``u_part``.
    ``u_step`` and ``eta_step`` are the roundoff and half the smallest step of an intermediate stored between two
    operations (unfused half-precision kernels).
    ``twice`` says that the float64 reference is no better than the candidate: see ``reference_share``.
    ``provenance`` says who chose the model: ``default``, ``contract`` or ``ir``.
    """

    name: str
    u: float
    largest: float
    order: Order = Order.EXCHANGEABLE
    eta: float = 2.0**-126
    u_factor: float = 0.0
    u_operand: float = 0.0
    block: int = 0
    u_block: float = 0.0
    parts: int = 0
    u_part: float = 0.0
    u_step: float = 0.0
    eta_step: float = 0.0
    twice: bool = False
    provenance: str = "default"

    @property
    def lam(self) -> float:
        """The factor on the compute part of the bound: 8 for exchangeable orders, 1 for the worst case."""
        return EXCHANGEABLE_LAMBDA if self.order is Order.EXCHANGEABLE else 1.0

    @property
    def reference_share(self) -> float:
        """What the bound is multiplied by for the reference's own error: two independent errors add up in the square
        (sqrt 2), two worst cases add up (2); 1 where the reference is far better."""
        return 1.0 if not self.twice else 2.0 if self.order is Order.WORST else 2.0**0.5

    @staticmethod
    def fp32(*, worst: bool = False) -> Accumulation:
        """Float32 sums: the default promise for float32 and 16-bit inputs."""
        return Accumulation.of(form_of("float32"), worst=worst)

    @staticmethod
    def of(kind: Format | str | DType, *, worst: bool = False) -> Accumulation:
        """Sums kept in ``kind`` (a format, its name or its torch dtype); for float64 the reference's own error is
        added."""
        kind = _format(kind)
        order = Order.WORST if worst else Order.EXCHANGEABLE
        double = kind.name == "float64"
        eta = 0.0 if double else min(kind.tiny, 2.0**-126)
        return Accumulation(kind.name, kind.u, kind.largest, order, eta, twice=double)

    @staticmethod
    def tf32(*, worst: bool = False) -> Accumulation:
        """Float32 sums of products whose factors are cut to tf32 (10 bits; truncated by the hardware: u = 2^-10)."""
        return replace(Accumulation.fp32(worst=worst), name="tf32", u_factor=2.0**-10)

    def blocked(self, size: int, kind: Format | str | DType) -> Accumulation:
        """``size`` terms at a time summed in ``kind``, the block results in this model."""
        kind = _format(kind)
        if size < 2:
            raise InputError(f"a block of {size} terms is no block; give at least 2")
        return replace(self, name=f"{self.name}, blocks of {size} in {kind.name}", block=size, u_block=kind.u)

    def split(self, parts: int, kind: Format | str | DType) -> Accumulation:
        """Split in ``parts`` sums whose results are rounded to ``kind`` and added in it (split-K, atomics)."""
        kind = _format(kind)
        if parts < 2:
            raise InputError(f"a sum split in {parts} is not split; give at least 2 parts")
        return replace(self, name=f"{self.name}, {parts} parts in {kind.name}", parts=parts, u_part=kind.u)

    def stepwise(self, kind: Format | str | DType) -> Accumulation:
        """Each operation's result is stored in ``kind`` before the next one reads it (unfused eager kernels)."""
        kind = _format(kind)
        largest = min(self.largest, kind.largest)
        return replace(
            self, name=f"{self.name}, steps in {kind.name}", u_step=kind.u, eta_step=kind.eta, largest=largest
        )

    def rounding_operands(self, kind: Format | str | DType) -> Accumulation:
        """Factors of a product that are results themselves are rounded to ``kind`` first, as flash attention does."""
        kind = _format(kind)
        return replace(self, name=f"{self.name}, computed factors in {kind.name}", u_operand=kind.u)

    def keeping_subnormals(self) -> Accumulation:
        """The same model for a kernel that flushes nothing."""
        return replace(self, eta=min(self.eta, 2.0**-150))

    def factor(self, n: int) -> float:
        """The worst-case factor f in |error| <= f·Σ|x| for one sum of ``n`` terms, any order.

        gamma_n = n·u / (1 − n·u) (Higham, section 3.1), a level of it for each stage; infinite where n·u >= 1.
        """

        def gamma(terms: float, u: float) -> float:
            return terms * u / (1 - terms * u) if terms * u < 1 else float("inf")

        if self.block:
            return gamma(min(n, self.block), self.u_block) + gamma(-(-n // self.block), self.u)
        if self.parts:
            return gamma(-(-n // self.parts), self.u) + gamma(self.parts + 1, self.u_part)
        return gamma(n, self.u)


def form_of(name: str | DType) -> Format:
    """The format of that name (``float32``), or of a torch dtype. Raises ``InputError`` for an unknown one."""
    import torch

    dtype: DType = getattr(torch, name, None) if isinstance(name, str) else name
    if not isinstance(dtype, torch.dtype):
        known = ", ".join(f.name for f in FORMATS.values())
        raise InputError(f"no error bound is known for {name!r}; use one of {known}")
    return form(dtype)


def _format(kind: Format | str | DType) -> Format:
    return kind if isinstance(kind, Format) else form_of(kind)


_IR_NAMES = {"f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16"}


def choose(contract: Contract | None, inputs: str, ir: Iterable[str] = ()) -> Accumulation:
    """The model to judge by: the contract's word first, then the accumulator types the IR shows, else float32.

    ``inputs`` names the input dtype (``bfloat16``); ``ir`` lists accumulator types as IR spells them
    (``f32``, ``tf32``, ``f16``). A 16-bit accumulator in the IR does not weaken the promise: only a
    contract that says ``input`` does. ``tf32`` in the IR does, since it is about the factors, not the sum.
    """
    if contract is not None and contract.accumulator is Accumulator.INPUT:
        return replace(Accumulation.of(form_of(inputs)), provenance="contract")
    if inputs == "float64":
        return Accumulation.of(form_of("float64"))
    seen = set(ir)
    unknown = seen - set(_IR_NAMES) - {"tf32"}
    if unknown:
        raise InputError(f"unknown accumulator type {sorted(unknown)[0]!r}; known are f16, bf16, f32, tf32, f64")
    said = "contract" if contract is not None and contract.accumulator is not None else "default"
    if "tf32" in seen:
        return replace(Accumulation.tf32(), provenance="ir")
    return replace(Accumulation.fp32(), provenance="ir" if seen and said == "default" else said)
