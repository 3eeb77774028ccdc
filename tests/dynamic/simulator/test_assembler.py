"""What checked mode takes from NVIDIA's assembler: forms it accepts, and how it orders loads from Tensor Memory."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from test_descriptors import tool

_KERNEL = """.version 8.8
.target sm_100a
.address_size 64
.extern .shared .align 1024 .b8 mem[];
.visible .entry k(.param .u64 out, .param .u32 where)
.reqntid 128
{{
.reg .b64 %d<9>;
.reg .b32 %r<30>;
ld.param.b64 %d1, [out];
ld.param.b32 %r1, [where];
mov.u32 %r2, %tid.x;
mul.wide.u32 %d3, %r2, 4;
add.s64 %d2, %d1, %d3;
{body}
ret;
}}
"""
_LOAD = "tcgen05.ld.sync.aligned.32x32b.x4.b32 {%r10, %r11, %r12, %r13}, [%r1];\n"
_USE = "xor.b32 %r20, %r10, %r11;\nxor.b32 %r20, %r20, %r12;\nxor.b32 %r20, %r20, %r13;\nst.global.b32 [%d2], %r20;\n"
_WAIT = "tcgen05.wait::ld.sync.aligned;\n"


def assembled(body: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """ptxas on a kernel; ``k.cubin`` in the folder."""
    (folder / "k.ptx").write_text(_KERNEL.format(body=body))
    command = [tool("ptxas-blackwell"), "-arch=sm_100a", str(folder / "k.ptx"), "-o", str(folder / "k.cubin")]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def scheduled(body: str, folder: Path) -> list[tuple[str, int, int]]:
    """Each machine instruction with the scoreboard that it sets (7: none) and the mask of those that it waits for."""
    done = assembled(body, folder)
    assert done.returncode == 0, done.stderr
    command = [tool("nvdisasm"), "-c", "-hex", str(folder / "k.cubin")]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.findall(r"/\*[0-9a-f]{4}\*/\s+(.*?)\s*;\s+/\* 0x[0-9a-f]{16} \*/\s+/\* (0x[0-9a-f]{16}) \*/", text)
    return [(name, int(high, 16) >> 46 & 7, int(high, 16) >> 52 & 63) for name, high in found]


@pytest.mark.parametrize(
    "body", [_LOAD + _WAIT + _USE, _LOAD + _USE + _WAIT, _LOAD + _USE], ids=("before", "after", "no")
)
def test_a_scoreboard_guards_registers_loaded_from_tensor_memory(body: str, tmp_path: Path) -> None:
    code = scheduled(body, tmp_path)
    at, (load, board, _) = next((k, c) for k, c in enumerate(code) if c[0].startswith("LDTM"))
    register = re.search(r"\bR(\d+)", load)
    assert register is not None and board < 6
    filled = {f"R{int(register[1]) + k}" for k in range(4)}
    reader = next(c for c in code[at + 1 :] if filled & set(re.findall(r"\bR\d+\b", c[0])))
    assert reader[2] >> board & 1, f"{reader[0]} does not wait for scoreboard {board}"


@pytest.mark.parametrize("op", ["and", "or", "xor"])
def test_bitwise_bulk_reductions_are_of_untyped_words(op: str, tmp_path: Path) -> None:
    form = f"cp.reduce.async.bulk.global.shared::cta.bulk_group.{op}.%s [%%d1], [mem], 16;"
    assert assembled(form % "b32", tmp_path).returncode == 0
    assert f"Incorrect type '.u32' for operation '.{op}'" in assembled(form % "u32", tmp_path).stderr
