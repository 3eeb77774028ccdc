"""The Gluon scan compiles for sm_100 with the installed Triton, in a process of its own, and is what its docstring
says.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

SCRIPT = """
import json, re, sys, triton
from triton.backends.compiler import GPUTarget
from triton.experimental.gluon._runtime import GluonASTSource
from kcontract.kernels.gdn.gluon_scan import reverse_scan

kinds = dict.fromkeys(("k", "do", "A", "P", "Qg", "dh", "Y", "dv"), "*bf16")
kinds |= dict.fromkeys(("beta", "ga", "dht", "dh0"), "*fp32")
constants = {"K": int(sys.argv[1]), "C": 64, "num_warps": 4}
signature = {n: "constexpr" if n in constants else kinds.get(n, "i32") for n in reverse_scan.arg_names}
place = {(i,): constants[n] for i, n in enumerate(reverse_scan.arg_names) if n in constants}
aligned = {(i,): [["tt.divisibility", 16]] for i, n in enumerate(reverse_scan.arg_names) if n in kinds or n == "V"}
source = GluonASTSource(reverse_scan, signature, place, aligned)
made = triton.compile(source, target=GPUTarget("cuda", 100, 32), options={"num_warps": 4})
ptx = made.asm["ptx"]
words = ("tcgen05.mma", "tcgen05.alloc", "tcgen05.dealloc", "tcgen05.commit")
count = {w: len(re.findall(rf"^\\s*(?:@\\S+ )?{re.escape(w)}\\.", ptx, re.MULTILINE)) for w in words}
found = {"count": count, "columns": made.metadata.tmem_size, "shared": made.metadata.shared}
print(json.dumps(found | {"ttgir": made.asm["ttgir"]}))
"""


@pytest.mark.parametrize(("K", "columns"), [(64, 256), (128, 512)])
def test_the_scan_uses_tensor_memory_as_laid_out(K, columns, tmp_path):
    environment = os.environ | {"TRITON_CACHE_DIR": str(tmp_path)}
    run = subprocess.run([sys.executable, "-c", SCRIPT, str(K)], env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    made = json.loads(next(line for line in run.stdout.splitlines() if line.startswith("{")))
    # Products of 16 deep: K / 16 for D16 K^T, and 64 / 16 for each of dO^T P, dO^T Q, dVn A and Z K.
    assert made["count"]["tcgen05.mma"] == K // 16 + 4 * 4
    assert made["count"]["tcgen05.alloc"] == made["count"]["tcgen05.dealloc"] == 1
    assert made["count"]["tcgen05.commit"] == 3, "one a dependent product"
    assert made["columns"] == columns and made["shared"] <= 232_448
    assert made["ttgir"].count("ttng.tc_gen5_mma ") == 5 and made["ttgir"].count("ttng.tmem_alloc") == 5


def test_the_scan_computes_what_float64_does_when_its_ptx_is_simulated(tmp_path):
    pytest.importorskip("torch")
    script = Path(__file__).with_name("simulated_gluon.py")
    environment = os.environ | {"TRITON_CACHE_DIR": str(tmp_path)}
    run = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    errors = json.loads(next(line for line in run.stdout.splitlines() if line.startswith("{")))
    assert set(errors) == {"dh", "Y", "dv", "dh0"}
    for name, error in errors.items():
        assert error < 4e-3, (name, error)  # operands are rounded to bfloat16: 1.7e-3 a rounding
