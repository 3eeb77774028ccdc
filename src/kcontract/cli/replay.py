"""``kcontract replay``: shows the failure of a witness again, on the engine it was seen on or on another."""

from __future__ import annotations

import argparse
import json as jsonlib
from pathlib import Path
from typing import Any

EXAMPLES = """examples:
  kcontract replay .kcontract/kernel-ModelNew-EXC-01.json
  kcontract replay witness.json --engine sim:sm_100     the same inputs on another engine
  kcontract replay witness.json --json

exit status: 1 the failure shows again, 0 it does not, 2 wrong use, 3 it cannot be tried"""


def add_parser(commands: Any) -> None:
    """Add this command to the parser."""
    parser = commands.add_parser(
        "replay",
        help="show the failure of a witness again",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("witness", metavar="WITNESS", help="file written by kcontract verify")
    parser.add_argument("--engine", metavar="NAME", help="gpu, sim:SM or interpreter (default: the witness's own)")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.set_defaults(main=main)


def main(args: argparse.Namespace) -> int:
    """Run the gate of the witness on its own inputs; returns the exit status."""
    from kcontract.cli.verify import torch_is_there
    from kcontract.model import Status, Witness

    witness = Witness.load(Path(args.witness))
    torch_is_there()
    from kcontract.dynamic.replay import replay

    engine = args.engine or witness.engine
    seen = replay(witness, engine)
    same = seen.witness is not None and (seen.witness.index, seen.witness.found, seen.witness.wanted) == (
        witness.index,
        witness.found,
        witness.wanted,
    )
    alike = seen.witness is not None and isinstance(seen.witness.found, str) == isinstance(witness.found, str)
    verdict = seen.verdict
    if args.json:
        record = {
            "type": "replay", "gate": witness.gate, "kernel": witness.kernel, "engine": engine, "identical": same,
            "status": verdict.status.value, "reason": verdict.reason,
        }  # fmt: skip
        print(jsonlib.dumps(record))
    else:
        print(f"{witness.kernel} on {engine}: {witness.gate} {verdict.status}: {verdict.reason}")
        if verdict.status is Status.FAIL:
            other = "the failure shows again, with other values" if alike else "it fails, but in another way"
            print("the failure shows again, bit for bit" if same else other)
        else:
            print("the failure does not show")
    return {Status.FAIL: 1, Status.PASS: 0, Status.NOT_APPLICABLE: 0}.get(verdict.status, 3)
