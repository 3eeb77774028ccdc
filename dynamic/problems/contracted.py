"""Plain functions that carry ``@kcontract.contract(reference=..., inputs=...)``.

The file is not imported: the decorator's keywords are read from its syntax tree and evaluated beside the definitions
they name, so that the candidate's own code never runs in the grader.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kcontract.dynamic.problems import guard, source
from kcontract.dynamic.problems.problem import Entry, Problem
from kcontract.errors import InputError, KContractError
from kcontract.model.declare import Declaration, declaration


def matches(path: str) -> bool:
    """Whether a function of the file carries a contract."""
    return any(True for _ in _decorated(source.parse(path)))


def load(path: str, name: str | None = None) -> list[Problem]:
    """One problem a contracted function, or the one of that name. Raises ``InputError`` where there is none."""
    found = {function.name: call for function, call in _decorated(source.parse(path))}
    if name is not None and name not in found:
        raise InputError(f"has no contract on {name}; it has one on {', '.join(found) or 'nothing'}", path=path)
    return [_problem(path, each, found[each]) for each in ([name] if name else found)]


def _decorated(tree: ast.Module) -> Iterator[tuple[ast.FunctionDef, ast.Call]]:
    for statement in tree.body:
        for decorator in statement.decorator_list if isinstance(statement, ast.FunctionDef) else ():
            if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) in ("kcontract.contract", "contract"):
                assert isinstance(statement, ast.FunctionDef)
                yield statement, decorator


def _problem(path: str, name: str, call: ast.Call) -> Problem:
    declared = _declared(path, call)
    return Problem(
        name=name,
        candidate=Entry(path, name, "function"),
        reference=guard.reference(lambda: declared.reference),
        inputs=guard.inputs(declared.inputs),
        contract=declared.contract,
        origin={
            "format": "contract",
            "candidate": path,
            "name": name,
            "gradients": declared.gradients,
            "dtypes": list(declared.dtypes),
        },
    )


def _declared(path: str, call: ast.Call) -> Declaration:
    used = {
        n.id for n in ast.walk(ast.Module([ast.Expr(k.value) for k in call.keywords], [])) if isinstance(n, ast.Name)
    }
    known = source.defined(source.parse(path))
    module = source.module_of(path, [n for n in used if n in known])
    values = {}
    for keyword in call.keywords:
        if keyword.arg is None:
            raise InputError("a contract's keywords are written out, not passed with **", path=path, line=call.lineno)
        try:
            code = compile(ast.Expression(keyword.value), path, "eval")
            values[keyword.arg] = eval(code, module.__dict__)
        except Exception as error:
            what = f"contract({keyword.arg}=...) cannot be evaluated: {type(error).__name__}: {error}"
            raise InputError(what, path=path, line=call.lineno) from None
    try:
        return declaration(**values)
    except TypeError as error:
        raise InputError(f"its contract is incomplete: {error}", path=path, line=call.lineno) from None
    except KContractError as error:
        raise InputError(str(error), path=path, line=call.lineno) from None
