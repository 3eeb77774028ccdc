"""flashinfer-bench: a Definition (axes, tensors, a reference in Python text) and a Solution (sources, entry point).

Both are JSON files of the FlashInfer Trace schema (https://bench.flashinfer.ai/docs/flashinfer-trace). The solution's
sources are written to a folder of their own, beside a small adapter that calls the entry point by keyword and, in
destination-passing style, allocates its outputs. CUDA entry points in C are not built here: such a solution is
refused. Variable axes get the sizes of a workload where one is given, else 64 (or the size a constraint wants).
"""

from __future__ import annotations

import ast
import atexit
import json
import shutil
import tempfile
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kcontract.dynamic.inputs.spec import Argument, Role, Spec
from kcontract.dynamic.problems import guard
from kcontract.dynamic.problems.problem import Entry, Problem
from kcontract.errors import InputError
from kcontract.model import Contract

#: Size of a variable axis that nothing says more of.
_SIZE = 64
_FLOATS = ("float32", "float16", "bfloat16", "float64", "float8_e4m3fn", "float8_e5m2")
_INTEGERS = ("int64", "int32", "int16", "int8", "uint8")


def load(solution: str, definition: str, axes: Mapping[str, int] | None = None) -> Problem:
    """The problem of a Solution and its Definition. Raises ``InputError`` for files of another kind."""
    solved, defined = _json(solution), _json(definition)
    for key in ("axes", "inputs", "outputs", "reference"):
        if key not in defined:
            raise InputError(f"is no flashinfer-bench Definition: it has no {key!r}", path=definition)
    for key in ("spec", "sources"):
        if key not in solved:
            raise InputError(f"is no flashinfer-bench Solution: it has no {key!r}", path=solution)
    sizes = _sizes(defined, axes or {}, definition)
    fixed = {n: sizes[n] for n, axis in defined["axes"].items() if axis.get("type") == "const"}
    arguments = tuple(_argument(n, t, fixed, definition) for n, t in defined["inputs"].items())
    spec = Spec(arguments, {n: size for n, size in sizes.items() if n not in fixed})
    run = _reference(str(defined["reference"]), definition)
    entry = _written(solved, defined, solution)

    def inputs() -> tuple[Any, ...]:
        from kcontract.dynamic.inputs.sets import build

        return build(spec, 0)

    return Problem(
        name=str(solved.get("name", "solution")),
        candidate=entry,
        reference=guard.reference(lambda: run),
        inputs=inputs,
        contract=Contract(reference=f"{definition}:run"),
        spec=spec,
        origin={"format": "flashinfer-bench", "candidate": solution, "reference": definition},
    )


def _json(path: str) -> dict[str, Any]:
    try:
        data = json.loads(Path(path).read_text())
    except (OSError, ValueError) as error:
        raise InputError(f"is not JSON: {error}", path=path) from None
    if not isinstance(data, dict):
        raise InputError("is no JSON object", path=path)
    return data


def _sizes(defined: Mapping[str, Any], given: Mapping[str, int], path: str) -> dict[str, int]:
    """Sizes of all axes: constants, those given, 64, and what ``A == B * C`` constraints make of them."""
    sizes = {
        n: int(a["value"]) if a.get("type") == "const" else given.get(n, _SIZE) for n, a in defined["axes"].items()
    }
    for constraint in defined.get("constraints") or ():
        left, _, right = str(constraint).partition("==")
        if left.strip() in sizes and left.strip() not in given:
            try:
                sizes[left.strip()] = int(_evaluated(right, sizes))
            except (ValueError, KeyError, SyntaxError):
                raise InputError(
                    f"its constraint {constraint!r} is not of the form AXIS == product", path=path
                ) from None
    return sizes


def _evaluated(text: str, sizes: Mapping[str, int]) -> int:
    """The value of a product, sum or quotient of axes and numbers. Raises ``ValueError`` for anything else."""

    def value(node: ast.expr) -> int:
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return node.value
        if isinstance(node, ast.Name):
            return sizes[node.id]
        if isinstance(node, ast.BinOp):
            left, right = value(node.left), value(node.right)
            if isinstance(node.op, ast.Mult):
                return left * right
            if isinstance(node.op, ast.Add):
                return left + right
            if isinstance(node.op, ast.Sub):
                return left - right
            if isinstance(node.op, ast.FloorDiv) and right:
                return left // right
        raise ValueError(text)

    return value(ast.parse(text.strip(), mode="eval").body)


def _argument(name: str, tensor: Mapping[str, Any], fixed: Mapping[str, int], path: str) -> Argument:
    dtype = str(tensor.get("dtype"))
    if tensor.get("shape") is None:
        return Argument(name, role=Role.FIXED, value=1 if dtype in _INTEGERS else 1e-5 if name == "eps" else 0.5)
    shape = tuple(fixed.get(axis, axis) for axis in map(str, tensor["shape"]))
    if dtype in _FLOATS:
        return Argument(name, shape, dtype)
    if dtype in _INTEGERS:
        return Argument(name, shape, dtype, Role.INDEX, high=2)
    raise InputError(f"its input {name} has dtype {dtype}, which is not drawn here", path=path)


def _reference(text: str, path: str) -> Any:
    module = types.ModuleType("kcontract_flashinfer_reference")
    guard.watch(path)
    try:
        exec(compile(text, path, "exec"), module.__dict__)
    except Exception as error:
        raise InputError(f"its reference cannot be run: {type(error).__name__}: {error}", path=path) from None
    if not callable(getattr(module, "run", None)):
        raise InputError("its reference defines no function run", path=path)
    return module.run


_ADAPTER = '''"""Calls a flashinfer-bench solution by keyword."""
import importlib.util
import os
import sys

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
spec = importlib.util.spec_from_file_location("solution", os.path.join(HERE, {file!r}))
module = importlib.util.module_from_spec(spec)
sys.modules["solution"] = module
spec.loader.exec_module(module)
INPUTS, OUTPUTS, CONSTANTS, PASSED = {inputs!r}, {outputs!r}, {constants!r}, {passed!r}


def run(*values):
    named = dict(zip(INPUTS, values))
    if PASSED:
        sizes = dict(CONSTANTS)
        for name, axes in INPUTS.items():
            if axes is not None:
                sizes.update(zip(axes, named[name].shape))
        device = next(v.device for v in values if isinstance(v, torch.Tensor))
        made = {{n: torch.empty([sizes[a] for a in axes], dtype=getattr(torch, dtype), device=device)
                for n, (axes, dtype) in OUTPUTS.items()}}
        module.{function}(**named, **made)
        return tuple(made.values())
    result = module.{function}(**named)
    if isinstance(result, dict):
        return tuple(result[name] for name in OUTPUTS)
    return result
'''


def _written(solved: Mapping[str, Any], defined: Mapping[str, Any], path: str) -> Entry:
    """The solution's files and the adapter, written to a folder that goes when this process ends."""
    spec = solved["spec"]
    file, _, function = str(spec.get("entry_point", "")).partition("::")
    if not file.endswith(".py") or not function.isidentifier():
        raise InputError(
            f"its entry point is {spec.get('entry_point')!r}; only FILE.py::FUNCTION can be called", path=path
        )
    folder = Path(tempfile.mkdtemp(prefix="kcontract-solution-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for source in solved["sources"]:
        target = (folder / str(source["path"])).resolve()
        if not target.is_relative_to(folder.resolve()):
            raise InputError(f"its source {source['path']!r} lies outside its folder", path=path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(str(source["content"]))
    if not (folder / file).is_file():
        raise InputError(f"its entry point names {file}, which is not among its sources", path=path)
    text = _ADAPTER.format(
        file=file,
        function=function,
        inputs={n: t.get("shape") for n, t in defined["inputs"].items()},
        outputs={n: (t.get("shape"), t.get("dtype")) for n, t in defined["outputs"].items()},
        constants={n: a["value"] for n, a in defined["axes"].items() if a.get("type") == "const"},
        passed=bool(spec.get("destination_passing_style", False)),
    )
    (folder / "kcontract_adapter.py").write_text(text)
    return Entry(str(folder / "kcontract_adapter.py"), "run", "function")
