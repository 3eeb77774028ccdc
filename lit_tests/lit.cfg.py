"""lit configuration: each file is checked in place against the diagnostics it declares."""

import os
import sys
import tempfile

import lit.formats

config.name = "kcontract"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".ttgir", ".ptx"]
config.test_source_root = os.path.dirname(__file__)
config.test_exec_root = os.environ.get("KCONTRACT_LIT_OUTPUT") or tempfile.mkdtemp(prefix="kcontract-lit-")
config.environment["PYTHONPATH"] = os.environ.get("PYTHONPATH", "")
config.substitutions.append(("%kcontract", f"{sys.executable} -m kcontract"))
