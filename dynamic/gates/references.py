"""The reference's side of a bench: what is right on a sample, at which sizes, in which dtype, on which device.

Samples, references and bounds are kept, so that gates share them.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from kcontract.dynamic import oracle, results
from kcontract.dynamic.accumulators import accumulators, rounds_operands
from kcontract.dynamic.gates.answers import same_bits
from kcontract.dynamic.gates.parameters import randomised
from kcontract.dynamic.inputs import Role, Sample, Spec, build
from kcontract.dynamic.oracle import Accumulation, Expected, Policy
from kcontract.dynamic.problems import infer
from kcontract.dynamic.problems.problem import Problem
from kcontract.dynamic.sandbox import channel
from kcontract.dynamic.sandbox.candidate import Candidate
from kcontract.errors import InputError
from kcontract.model import Contract

#: Elements, inputs and outputs together, up to which an engine is given the problem's native sizes.
NATIVE = {"gpu": 1 << 28, "sim": 1 << 19, "interpreter": 1 << 18}
#: Elements of the problem that gates work on by default.
BUDGET = {"gpu": 1 << 15, "sim": 1 << 16, "interpreter": 1 << 14}

#: Elements, inputs and parameters together, up to which the oracle works on the CPU.
FEW = 1 << 18


def _passable(problem: Problem, inputs: Sequence[Any]) -> None:
    """Raises ``InputError`` for an input that cannot be handed to a candidate's process."""
    for at, value in enumerate(inputs):
        if not isinstance(value, torch.Tensor):
            try:
                channel.literal(value)
            except channel.Garbled:
                what = type(value).__name__
                raise InputError(
                    f"input {at} is a {what} that cannot be passed on; inputs are tensors, numbers, strings, None, and "
                    f"lists, tuples and dicts of such values without tensors in them",
                    path=problem.candidate.path,
                ) from None


class References:
    """``spec`` at the sizes gates work on, ``native`` the problem's own; ``dtype`` of floating inputs and parameters;
    ``given`` are the problem's own inputs."""

    def __init__(
        self, problem: Problem, candidate: Candidate, engine: str, seed: int, thorough: bool, dtype: str | None,
        progress: Callable[[str], None], dims: Mapping[str, int] | None,
    ) -> None:  # fmt: skip
        self.problem, self.candidate, self.engine = problem, candidate, engine
        self.seed, self.thorough, self.progress = seed, thorough, progress
        self.contract: Contract = problem.contract
        self.policy = Policy.of(self.contract)
        torch.manual_seed(seed)
        self.notes: list[str] = []
        self.given = tuple(problem.inputs())
        _passable(problem, self.given)
        self.defect, self.random, make = "", "", problem.reference
        if infer.is_random(make(), self.given):
            make = self._tamed(make)
        reference = make()
        if problem.spec is None:
            inferred = infer.infer(make, self.given, budget=BUDGET[candidate.kind])
            self.spec, self.native = inferred.spec, inferred.native
        else:
            self.spec, self.native = problem.spec, dict(problem.spec.dims)
        self.pinned = dims is not None
        if dims is not None:
            self.spec = self.spec.with_dims({n: int(s) for n, s in dims.items() if n in self.spec.dims})
        # On the device an index out of range ends the whole process; on the CPU it is an exception.
        indices = any(a.role is Role.INDEX for a in self.spec.arguments)
        self._large = torch.device("cuda" if candidate.kind == "gpu" and not indices else "cpu")
        self.own = next((a.dtype for a in self.spec.arguments if a.role is Role.DATA), "float32")
        self.dtype = dtype or self.own
        self.spec = self.spec.with_dtype(self.dtype) if self.dtype != self.own else self.spec
        self.plain = reference
        self.device = self._place(self.spec)
        self.master = randomised(reference, seed) if isinstance(reference, torch.nn.Module) else reference
        self.accumulators: dict[str, tuple[str, ...]] = {}
        self.rounded: dict[str, bool] = {}
        self.kernels = 1
        self._kept: dict[object, Expected | str] = {}
        self._returned: dict[object, tuple[list[Any] | None, list[str]]] = {}
        self._loaded = ""
        self._references: dict[tuple[str, torch.device], Any] = {}

    def _tamed(self, make: Callable[[], Any]) -> Callable[[], Any]:
        """What makes a reference that is random in training (dropout) in eval mode, and the candidate too; where it is
        random in both, nothing can be judged."""

        def evaluated() -> Any:
            return make().eval()

        if isinstance(make(), torch.nn.Module) and not infer.is_random(evaluated(), self.given):
            self.random = "the reference is random in training mode: it and the candidate are judged in eval mode"
            self.notes.append(self.random)
            self.candidate.training = False
            return evaluated
        self.defect = self.random = "the reference is random: its runs on the same inputs differ"
        return make

    def reference(self, dtype: str) -> Any:
        """The reference with the parameters the candidate has, in ``dtype``, on the oracle's device."""
        key = (dtype, self.device)
        if key not in self._references:
            made = self.master
            if isinstance(made, torch.nn.Module):
                made = copy.deepcopy(made)
                _ = made.to(getattr(torch, dtype)) if dtype != self.own else made
                made = made.to(self.device)
            self._references[key] = made
        return self._references[key]

    def _place(self, spec: Spec) -> torch.device:
        """The oracle's device at these sizes: a few elements are reckoned sooner on the CPU than by many small kernels
        that are waited for."""
        weights = sum(p.numel() for p in self.plain.parameters()) if isinstance(self.plain, torch.nn.Module) else 0
        return torch.device("cpu") if self.elements(spec) + weights <= FEW else self._large

    @contextlib.contextmanager
    def natively(self) -> Iterator[None]:
        """Within it, the oracle works where the problem's native sizes ask it to."""
        kept = self.device
        self.device = self._place(self.spec.with_dims(self.native))
        try:
            yield
        finally:
            self.device = kept

    def model(self, dtype: str) -> Accumulation:
        """The accumulation to judge by. A 16-bit candidate of several kernels stores 16-bit values between them."""
        chosen = oracle.choose(self.contract, dtype, self.accumulators.get(dtype, ()))
        if dtype in ("float16", "bfloat16") and self.kernels > 1:
            return chosen.stepwise(oracle.form_of(dtype))
        return chosen.rounding_operands(oracle.form_of(dtype)) if self.rounded.get(dtype) else chosen

    def learn(self, dtype: str) -> bool:
        """Read, once a dtype, what the products of the compiled kernels add in; whether that allows more."""
        if dtype in self.accumulators:
            return False
        before = self.model(dtype)
        self.accumulators[dtype] = accumulators(self.candidate.cache, dtype)
        self.rounded[dtype] = rounds_operands(self.candidate.cache, dtype)
        return self.model(dtype) != before

    def expected(self, sample: Sample, *, grads: bool | Sequence[Any] = False, model: Accumulation | None = None,
                 dtype: str | None = None, flush_inputs: bool = False) -> Expected | str:  # fmt: skip
        """What is right on a sample; or a sentence where the reference itself cannot take it. ``grads`` asks for
        gradients, of random upstream ones or of those given (one set a sample)."""
        dtype = dtype or self.dtype
        model = model or self.model(dtype)
        key: tuple[object, ...] = (sample.gate, sample.label, sample.seed, tuple(sample.dims.items()))
        key = (*key, grads if isinstance(grads, bool) else "given", model, dtype, flush_inputs)
        if key not in self._kept:
            inputs = [v.to(self.device) if isinstance(v, torch.Tensor) else v for v in sample.inputs]
            reference = self.reference(dtype)
            try:
                outs = self.eager_dtypes(reference, inputs)
                self._kept[key] = oracle.run(
                    reference, inputs, model=model, out_dtype=outs, grads=grads, flush_inputs=flush_inputs,
                    seed=sample.seed,
                )  # fmt: skip
            except InputError as error:
                self._kept[key] = str(error)
            except Exception as error:
                self._kept[key] = (
                    f"the reference fails here: {type(error).__name__}: {str(error).splitlines()[0][:200]}"
                )
        return self._kept[key]

    def eager_dtypes(self, reference: Any, inputs: Sequence[Any]) -> list[Any] | None:
        """Dtypes that the reference itself returns for inputs of these dtypes, by running it on no data, once; on the
        inputs where it needs data."""
        return self._returns(reference, inputs)[0]

    def _returns(self, reference: Any, inputs: Sequence[Any]) -> tuple[list[Any] | None, list[str]]:
        """Dtypes, and the kinds of all parts of the result."""
        own = {p.dtype for p in reference.parameters()} if isinstance(reference, torch.nn.Module) else ()
        key = (*own, *(v.dtype if isinstance(v, torch.Tensor) else repr(v)[:64] for v in inputs))
        for device in ("meta", self.device) if key not in self._returned else ():
            try:
                with torch.no_grad():
                    made = [v.detach().to(device, copy=True) if isinstance(v, torch.Tensor) else v for v in inputs]
                    module = reference
                    if isinstance(reference, torch.nn.Module):
                        module = copy.deepcopy(reference).to(device)
                    parts = list(results.leaves(module(*made)))
                dtypes = [results.tensor_of(part).dtype for part in parts if results.compared(part)]
                self._returned[key] = (dtypes, [results.kind(part) for part in parts])
                break
            except Exception:
                continue
        return self._returned.setdefault(key, (None, []))

    def _parts(self, dtype: str | None, inputs: Sequence[Any]) -> list[str]:
        return self._returns(self.reference(dtype or self.dtype), inputs)[1]

    def eager(self, sample: Sample, dtype: str | None = None) -> list[Any] | None:
        """What the reference gives when it is run as it is; None where it cannot be run so."""
        inputs = [v.detach().clone().to(self.device) if isinstance(v, torch.Tensor) else v for v in sample.inputs]
        try:
            with torch.no_grad():
                return oracle.outputs_of(self.reference(dtype or self.dtype)(*inputs))
        except Exception:
            return None

    def writes(self, sample: Sample) -> frozenset[int]:
        """Arguments that the reference itself changes."""
        given = [v.detach().to(self.device, copy=True) if isinstance(v, torch.Tensor) else v for v in sample.inputs]
        kept = [v.clone() if isinstance(v, torch.Tensor) else v for v in given]
        try:
            with torch.no_grad():
                self.reference(self.dtype)(*given)
        except Exception:
            return frozenset()
        tensors = [(k, v) for k, v in enumerate(given) if isinstance(v, torch.Tensor)]
        return frozenset(k for k, v in tensors if not same_bits(v, kept[k]))

    def nominal(self, label: str = "normal", seed: int = 0, kind: str = "normal", gate: str = "CMP-01") -> Sample:
        """A sample at the working sizes."""
        return Sample(gate, label, self.seed + seed, build(self.spec, self.seed + seed, kind), self.spec.dims)

    def uneven(self, gate: str, label: str, spec: Spec | None = None) -> Sample | None:
        """Ordinary inputs with every size that the contract lets move moved to an odd one; None where none is."""
        odd = {name: size + 1 + size % 2 for name, size in self.spec.dims.items()}
        dims = {name: size if self.admits({name: size}) else self.spec.dims[name] for name, size in odd.items()}
        moved = (spec or self.spec).with_dims(dims)
        if (
            dims == dict(self.spec.dims)
            or not self.admits(dims)
            or self.elements(moved) > 4 * BUDGET[self.candidate.kind]
        ):
            return None
        return Sample(gate, label, self.seed, build(moved, self.seed), moved.dims)

    @contextlib.contextmanager
    def parameters(self, module: Any) -> Iterator[None]:
        """Within it, reference and candidate have the parameters of ``module``."""
        key, kept, self._loaded = (self.dtype, self.device), self.reference(self.dtype), ""
        self._references[key] = module
        try:
            yield
        finally:
            self._references[key], self._loaded = kept, ""

    def elements(self, spec: Spec) -> int:
        """Elements of all inputs."""
        return sum(torch.Size(spec.shape(a)).numel() for a in spec.arguments if a.role is not Role.FIXED)

    def admits(self, dims: Mapping[str, int]) -> bool:
        """Whether the contract admits these sizes."""
        ranges, divisible = self.contract.ranges, self.contract.divisible
        return all(
            ranges.get(name, (size, size))[0] <= size <= ranges.get(name, (size, size))[1]
            and size % divisible.get(name, 1) == 0
            for name, size in dims.items()
        )
