"""``python -m kcontract``."""

import os
import sys

from kcontract.cli import main

status = main()
if status == 130:  # interrupted: what torch and Triton say of objects still alive at the exit is no news
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
sys.exit(status)
