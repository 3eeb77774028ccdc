"""The oracle needs torch; what lies beside it must not."""

from __future__ import annotations

import subprocess
import sys


def test_importing_dynamic_and_shrink_imports_no_torch() -> None:
    code = "import sys, kcontract.dynamic, kcontract.dynamic.shrink; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
