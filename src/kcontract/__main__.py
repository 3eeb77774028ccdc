"""``python -m kcontract``."""

import sys

from kcontract.cli import main

sys.exit(main())
