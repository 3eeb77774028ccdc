"""A witness: a file that replays a FAIL."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from kcontract.errors import InputError

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Witness:
    """All that is needed to see a failure again.

    ``index`` is the worst element's multi-index in output ``output``; ``found``, ``wanted`` and ``allowed``
    are its values as numbers or the strings ``nan``, ``inf``, ``-inf``. ``problem`` holds what the engine
    needs to rebuild the launch (candidate and reference paths, generator name, argument roles).
    """

    gate: str
    kernel: str
    target: str
    engine: str
    seed: int
    shapes: Mapping[str, tuple[int, ...]]
    dtypes: Mapping[str, str]
    output: str
    index: tuple[int, ...]
    found: float | str
    wanted: float | str
    allowed: float | str
    problem: Mapping[str, object] = field(default_factory=dict)
    schema: int = SCHEMA

    def dump(self, path: Path) -> None:
        """Write the witness as JSON; a failed write leaves no file behind."""
        partial = path.with_name(path.name + ".partial")
        try:
            partial.write_text(json.dumps(asdict(self), indent=2, sort_keys=True) + "\n")
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)

    @staticmethod
    def load(path: Path) -> Witness:
        """Read a witness file. Raises ``InputError`` when it is none, or of another schema."""
        try:
            data = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise InputError(f"cannot read a witness: {error}", path=str(path)) from None
        if not isinstance(data, dict) or data.get("schema") != SCHEMA:
            raise InputError(f"not a witness of schema {SCHEMA}; write it again with this version", path=str(path))
        try:
            data["shapes"] = {name: tuple(shape) for name, shape in data["shapes"].items()}
            data["index"] = tuple(data["index"])
            return Witness(**data)
        except (KeyError, TypeError, AttributeError) as error:
            raise InputError(f"not a complete witness: {error}", path=str(path)) from None
