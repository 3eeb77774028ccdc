"""Cuts out of a Python file what some of its names need, so that the rest of the file is never run by the grader.

A file may hold the reference and the candidate together, and the candidate is not trusted: importing the file would
run its module-level code beside the grader. Kept are the wanted definitions and, transitively, the module-level
imports, definitions and assignments they name. Dropped is every other statement.
"""

from __future__ import annotations

import ast
import contextlib
import linecache
import os
import sys
import types
from collections.abc import Iterable, Iterator
from pathlib import Path

from kcontract.dynamic.problems import guard
from kcontract.errors import InputError


def parse(path: str) -> ast.Module:
    """The syntax tree of a file. Raises ``InputError`` when it cannot be read or is no Python."""
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", path=path) from None
    try:
        return ast.parse(text, path)
    except SyntaxError as error:
        raise InputError(f"is not Python: {error.msg}", path=path, line=error.lineno) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise InputError(f"is not Python: {type(error).__name__}: {error}", path=path) from None


def defined(tree: ast.Module) -> dict[str, ast.stmt]:
    """Names that module-level statements bind, each with its last statement."""
    return {name: statement for statement in tree.body for name in _bound(statement)}


def module_of(path: str, names: Iterable[str]) -> types.ModuleType:
    """A fresh module that holds ``names`` of the file and what they need, nothing else of it.

    Raises ``InputError`` for a missing name, or where what was kept cannot be run.
    """
    tree = parse(path)
    bound: dict[str, list[ast.stmt]] = {}
    for statement in tree.body:
        for name in _bound(statement):
            bound.setdefault(name, []).append(statement)
    kept: set[int] = set()
    waiting = list(names)
    for name in waiting:
        if name not in bound:
            raise InputError(f"defines no {name}; it defines {', '.join(bound) or 'nothing'}", path=path)
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        for statement in bound.get(name, ()):
            if id(statement) not in kept:
                kept.add(id(statement))
                waiting += _used(statement)
    body = [s for s in tree.body if id(s) in kept or _from_future(s) or _star(s)]
    module = types.ModuleType(f"kcontract_reference_{abs(hash(path))}")
    module.__file__ = path
    sys.modules[module.__name__] = module  # dataclasses and inspect look a class's module up
    guard.watch(path)
    try:
        with _siblings(path), guard.limited("its reference"):
            exec(compile(ast.Module(body, []), path, "exec"), module.__dict__)
    except InputError:
        raise
    except Exception as error:
        linecache.checkcache(path)
        raise InputError(f"its reference cannot be imported: {type(error).__name__}: {error}", path=path) from None
    return module


@contextlib.contextmanager
def _siblings(path: str) -> Iterator[None]:
    """Within it, modules beside the file can be imported, after all others of their name. They are forgotten at the
    end, so that a file in another folder gets its own."""
    folder, known = os.path.dirname(os.path.abspath(path)), set(sys.modules)
    sys.path.append(folder)
    try:
        yield
    finally:
        sys.path.remove(folder)
        for name in set(sys.modules) - known:
            file = getattr(sys.modules[name], "__file__", None)
            if file and os.path.dirname(os.path.abspath(file)) == folder:
                guard.watch(file)
                del sys.modules[name]


def _from_future(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.ImportFrom) and statement.module == "__future__"


def _star(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.ImportFrom) and any(alias.name == "*" for alias in statement.names)


def _bound(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield statement.name
    elif isinstance(statement, (ast.Import, ast.ImportFrom)):
        for alias in statement.names:
            yield (alias.asname or alias.name).split(".")[0]
    else:
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id


def _used(statement: ast.stmt) -> list[str]:
    return [node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)]
