"""The command line: one file a command, each with ``add_parser(subparsers)`` and ``main(args) -> int``."""

from __future__ import annotations

import argparse
import importlib
import io
import os
import pkgutil
import sys
import traceback
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
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a source line may hold what the terminal's encoding cannot
    try:
        status = int(args.main(args))
        if sys.stdout is not None:
            sys.stdout.flush()
        return status
    except KContractError as error:
        return _complain(str(error), ERROR if isinstance(error, InputError) else USAGE)
    except SystemExit as error:  # argparse has had its say: this one is of code that was loaded
        return _complain(f"the reference or its inputs ended the process (SystemExit {error.code})", ERROR)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + 13
    except KeyboardInterrupt:
        return _complain("interrupted", 130)
    except Exception as error:  # status 1 means a violation, never a defect of ours
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{os.path.basename(place.filename)}:{place.lineno}"
        return _complain(f"error inside kcontract: {type(error).__name__}: {error} ({where})", ERROR)


def _complain(sentence: str, status: int) -> int:
    if sys.stderr is not None:
        print(f"kcontract: {sentence}", file=sys.stderr)
    return status
