"""``kcontract rules``: lists the rules, or prints one rule's page."""

from __future__ import annotations

import argparse
import json
from typing import Any

EXAMPLES = """examples:
  kcontract rules                             every rule, by gate
  kcontract rules half-precision-accumulator  what it checks, why, and when it stays silent
  kcontract rules PRC-02                      a gate and its rules"""


def add_parser(commands: Any) -> None:
    """Add this command to the parser."""
    parser = commands.add_parser(
        "rules",
        help="list the rules, or explain one",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("code", nargs="?", metavar="CODE", help="a rule's name or a gate's id")
    parser.add_argument("--json", action="store_true", help="one JSON object a rule")
    parser.set_defaults(main=main)


def main(args: argparse.Namespace) -> int:
    """Print the list, a rule's page, or a gate's promise with its rules."""
    from kcontract.model import GATES
    from kcontract.passes.base import page, rules, selected

    chosen = rules() if args.code is None else selected([args.code])
    if args.json:
        for rule in chosen:
            record = {
                "rule": rule.slug,
                "gate": rule.gate,
                "since": rule.since,
                "status": rule.status,
                "page": page(rule),
            }
            print(json.dumps(record, ensure_ascii=False))
    elif args.code and args.code.upper() not in GATES:
        print(page(chosen[0]))
    else:
        for gate in GATES.values():
            mine = [rule for rule in chosen if rule.gate == gate.id]
            if mine or (args.code and args.code.upper() == gate.id):
                print(f"{gate.id}  {gate.promise}")
            for rule in mine:
                print(f"    {rule.slug:32} {page(rule).splitlines()[2]}")
    return 0
