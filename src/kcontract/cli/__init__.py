"""The command line: one file a command, each with ``add_parser(subparsers)`` and ``main(args) -> int``."""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil
import sys
from collections.abc import Sequence

from kcontract import __version__
from kcontract.errors import InputError, KContractError

OK, VIOLATION, USAGE, ERROR = 0, 1, 2, 3


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns 0 nothing above a hazard, 1 a violation, 2 wrong use, 3 an error of kcontract."""
    parser = argparse.ArgumentParser(
        prog="kcontract",
        description="Checks what a GPU kernel promises.",
        epilog="exit status: 0 nothing above a hazard, 1 violation, 2 wrong use, 3 error inside kcontract; "
        "'run' adds 4: the program itself failed",
    )
    parser.add_argument("--version", action="version", version=f"kcontract {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for entry in pkgutil.iter_modules(__path__):
        if not entry.name.startswith("_"):
            importlib.import_module(f"{__name__}.{entry.name}").add_parser(commands)
    args = parser.parse_args(argv)
    try:
        return int(args.main(args))
    except KContractError as error:
        print(f"kcontract: {error}", file=sys.stderr)
        return ERROR if isinstance(error, InputError) else USAGE
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + 13
    except KeyboardInterrupt:
        print("kcontract: interrupted", file=sys.stderr)
        return 130
