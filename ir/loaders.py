"""Finds compiled kernels on disk: in a Triton cache folder, or as loose files.

Why: the hook sees live compiles; everything else starts from files. A Triton cache (3.4 – 3.9) holds one folder a
specialisation, named by a base32 hash, with ``NAME.ttgir``, ``.ptx``, ``.cubin``, ``.json`` and ``__grp__NAME.json``,
whose absolute paths are not used: a cache may have been moved. What is not a kernel for an NVIDIA GPU comes back as
``Problem``, one sentence each, and reading goes on.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from kcontract.errors import InputError
from kcontract.ir.artifact import Artifact, kernel_name
from kcontract.ir.files import LIMITS, object_of, read_bytes
from kcontract.ir.target import Target

#: Files of other backends, which are named and left alone.
_FOREIGN = {"amdgcn": "AMD", "hsaco": "AMD", "spv": "Intel", "zebin": "Intel"}
_SUFFIXES = (*LIMITS, "ttir", *_FOREIGN)
_TTGIR_TARGET = re.compile(r"ttg\.target = \"([^\"\n]{1,64})\"")
_PTX_TARGET = re.compile(r"^\s*\.target\s+(\w{1,32})", re.MULTILINE)
_TEMPORARY = re.compile(r"tmp\.pid_|.*\.tmp(?:$|\.)")


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that was found and not loaded. ``is_fault`` is False for what kcontract leaves alone on purpose."""

    path: str
    message: str
    is_fault: bool = True

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


def load_cache(folder: str | os.PathLike[str]) -> Iterator[Artifact | Problem]:
    """Every kernel below ``folder``, in the order of names; links are followed once. Raises ``InputError`` where
    ``folder`` itself cannot be listed."""
    root = os.fspath(folder)
    seen: set[tuple[int, int]] = set()
    stack = [root]
    while stack:
        at = stack.pop()
        try:
            status = os.stat(at)
            if (status.st_dev, status.st_ino) in seen:
                yield Problem(at, "is a link back to a folder that was read before", is_fault=False)
                continue
            seen.add((status.st_dev, status.st_ino))
            with os.scandir(at) as entries:
                listed = sorted((entry.name, _is_folder(entry)) for entry in entries)
        except OSError as error:
            message = f"cannot be listed: {(error.strerror or str(error)).lower()}"
            if at == root:
                raise InputError(message, path=at) from error
            yield Problem(at, message)
            continue
        stack += [os.path.join(at, name) for name, is_folder in reversed(listed) if is_folder and not _passing(name)]
        names = [name for name, is_folder in listed if not is_folder and not _passing(name)]
        yield from _load(os.path.join(at, name) for name in names)


def load_files(paths: Iterable[str | os.PathLike[str]]) -> Iterator[Artifact | Problem]:
    """The kernels in loose files. Files beside a given one that differ from it in the ending alone belong to the
    same kernel and are read with it."""
    given = [os.fspath(path) for path in paths]
    yield from _load(given, with_siblings=True)


def load_text(text: str, kind: str, origin: str) -> Artifact:
    """The kernel in one text of ``kind`` ``ttgir`` or ``ptx``, which must name its target. Raises ``InputError``."""
    parts = {kind: text.encode("utf-8", "surrogateescape")}
    return Artifact.from_parts(os.path.basename(origin), _target({}, parts), parts, {}, origin)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _passing(name: str) -> bool:
    """Whether a name is one of Triton's temporary ones, which vanish by themselves."""
    return _TEMPORARY.match(name) is not None


def _load(paths: Iterable[str], with_siblings: bool = False) -> Iterator[Artifact | Problem]:
    groups: dict[str, dict[str, str]] = {}
    for path in paths:
        stem, dot, suffix = path.rpartition(".")
        base = os.path.basename(stem)
        if not dot or suffix not in _SUFFIXES or base.startswith("__grp__") or base.endswith(".autotune"):
            if with_siblings:
                yield Problem(path, "is none of .ttgir, .ptx, .cubin and .json")
            continue
        groups.setdefault(stem, {})[suffix] = path
    for stem, files in groups.items():
        if with_siblings:
            files = {kind: f"{stem}.{kind}" for kind in _SUFFIXES if os.path.exists(f"{stem}.{kind}")} | files
        yield from _kernel(stem, files)


def _kernel(stem: str, files: Mapping[str, str]) -> Iterator[Artifact | Problem]:
    """The kernel in files of one stem, after the problems met on the way."""
    foreign = sorted(kind for kind in files if kind in _FOREIGN)
    if foreign:
        message = f"holds a kernel for {_FOREIGN[foreign[0]]} GPUs, which kcontract leaves alone"
        yield Problem(files[foreign[0]], message, is_fault=False)
        return
    parts: dict[str, bytes] = {}
    for kind in LIMITS:
        if kind in files:
            try:
                parts[kind] = read_bytes(files[kind], LIMITS[kind])
            except InputError as error:
                yield Problem(files[kind], error.message)
    metadata: Mapping[str, object] = {}
    if "json" in parts:
        try:
            metadata = object_of(parts.pop("json"))
        except InputError as error:
            yield Problem(files["json"], error.message)
            if not parts:
                return
    if not parts:
        if metadata.get("target") is not None:
            yield Problem(files["json"], "describes a kernel whose .ttgir, .ptx and .cubin are missing")
        elif "ttir" in files:
            yield Problem(files["ttir"], "is IR from before layouts were chosen; give the .ttgir", is_fault=False)
        elif "json" in files and metadata:
            yield Problem(files["json"], "is metadata of no kernel", is_fault=False)
        return
    try:
        target = _target(metadata, parts)
        if not target.is_nvidia:
            path = next(files[kind] for kind in parts)
            yield Problem(path, f"is compiled for {target}, which kcontract leaves alone", is_fault=False)
            return
        kernel = kernel_name(metadata, os.path.basename(stem))
        yield Artifact.from_parts(kernel, target, parts, metadata, stem)
    except InputError as error:
        yield Problem(error.path or stem, error.message)


def _target(metadata: Mapping[str, object], parts: Mapping[str, bytes]) -> Target:
    """The target as metadata, TTGIR, PTX or cubin name it, asked in this order."""
    if metadata.get("target") is not None:
        return Target.parse(metadata["target"])
    for kind, pattern in (("ttgir", _TTGIR_TARGET), ("ptx", _PTX_TARGET)):
        if kind in parts and (match := pattern.search(parts[kind].decode("utf-8", "replace"))):
            return Target.parse(match[1])
    if "cubin" in parts:
        from kcontract.ir.cubin import read

        return Target.parse(read(parts["cubin"]).capability)
    raise InputError("names no target: it has neither metadata nor ttg.target nor .target")
