"""Instruction descriptors of tcgen05.mma: NVIDIA's assembler and disassembler agree with what the simulator decodes.

A module with one product a kernel is assembled for sm_100a and disassembled. The machine instruction names the kind of
product, the CTAs of its group, where A stands, and the uniform register that holds the descriptor; the word moved there
is decoded by the simulator and compared with the fields that were asked for.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from kcontract.dynamic.engines.simulator import tcgen05

#: What the disassembler calls the product of each kind.
_MACHINE = {"f16": "UTCHMMA", "tf32": "UTCHMMA", "i8": "UTCIMMA", "f8f6f4": "UTCQMMA", "mxf8f6f4": "UTCQMMA",
            "mxf4": "UTCOMMA", "mxf4nvf4": "UTCOMMA"}  # fmt: skip
_A_AND_B = {"f16": 0, "bf16": 1, "tf32": 2, "e4m3": 0, "e5m2": 1, "e2m3": 3, "e3m2": 4, "e2m1": 5, "u8": 0, "s8": 1}
_D = {"f16": 0, "f32": 1, "s32": 2}


@dataclass(frozen=True)
class Asked:
    """Fields of one product, laid out as the PTX ISA's tables of instruction descriptors say."""

    kind: str
    a: str
    b: str
    d: str = "f32"
    m: int = 128
    n: int = 64
    group: int = 1
    negate_a: bool = False
    negate_b: bool = False
    a_transposed: bool = False
    b_transposed: bool = False
    a_in_memory: bool = False
    scaled: bool = False
    scale_format: str = ""

    def word(self) -> int:
        kinds = {"e2m1": 1} if self.kind.startswith("mxf4") else _A_AND_B
        word = kinds[self.a] << 7 | kinds[self.b] << 10 | self.negate_a << 13 | self.negate_b << 14
        word |= self.a_transposed << 15 | self.b_transposed << 16 | self.n >> 3 << 17
        if self.scaled:
            return word | (self.scale_format == "ue8m0") << 23 | self.m >> 7 << 27
        return word | _D[self.d] << 4 | self.m >> 4 << 24

    def instruction(self) -> str:
        left = "[%r13]" if self.a_in_memory else "%d10"
        scale, operands = "", ""
        if self.scaled:
            scale, operands = (
                f".block_scale.{'scale_vec::1X' if self.kind == 'mxf8f6f4' else 'scale_vec::2X'}",
                "[%r13], [%r13], ",
            )
        return (
            f"tcgen05.mma.cta_group::{self.group}.kind::{self.kind}{scale} [%r13], {left}, %d11, %r14, {operands}%p3;"
        )


ASKED = (
    *(Asked("f16", a, a, d) for a in ("f16", "bf16") for d in ("f32", "f16") if (a, d) != ("bf16", "f16")),
    *(Asked("f16", "f16", "f16", m=m, n=n) for m, n in ((64, 8), (64, 256), (128, 16), (128, 240), (128, 256))),
    *(Asked("f16", "bf16", "bf16", m=m, n=n, group=2) for m, n in ((128, 32), (256, 256), (256, 64))),
    Asked("f16", "f16", "f16", negate_a=True), Asked("f16", "f16", "f16", negate_b=True),
    Asked("f16", "bf16", "bf16", a_transposed=True), Asked("f16", "bf16", "bf16", b_transposed=True),
    Asked("f16", "f16", "f16", a_in_memory=True),
    Asked("tf32", "tf32", "tf32"), Asked("tf32", "tf32", "tf32", b_transposed=True, m=64),
    Asked("i8", "s8", "s8", "s32"), Asked("i8", "u8", "s8", "s32"), Asked("i8", "s8", "u8", "s32"),
    *(Asked("f8f6f4", a, b) for a in ("e4m3", "e5m2", "e2m1") for b in ("e4m3", "e3m2", "e2m3")),
    Asked("f8f6f4", "e4m3", "e4m3", "f16"),
    *(Asked("mxf8f6f4", a, "e4m3", scaled=True, scale_format="ue8m0") for a in ("e4m3", "e5m2", "e2m1")),
    Asked("mxf8f6f4", "e4m3", "e4m3", m=256, n=128, group=2, scaled=True, scale_format="ue8m0"),
    Asked("mxf4", "e2m1", "e2m1", scaled=True, scale_format="ue8m0"),
)  # fmt: skip

_KERNEL = """.visible .entry k{n}()
.reqntid 128
{{
.reg .pred %p<4>;
.reg .b32 %r<20>;
.reg .b64 %d<20>;
mov.u32 %r1, %tid.x;
mov.b32 %r13, mem;
mov.b64 %d10, 0x0000400800080080;
mov.b64 %d11, 0x0000400800080200;
setp.ne.s32 %p3, %r1, %r1;
mov.b32 %r14, {word:#x};
{instruction}
ret;
}}
"""


def tool(name: str) -> str:
    """Path of one of NVIDIA's tools, from Triton's wheel or the system."""
    compiler = pytest.importorskip("triton.backends.nvidia.compiler", reason="Triton brings NVIDIA's tools")
    beside = Path(compiler.get_ptxas(100).path).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    if not found:
        pytest.skip(f"{name} is not installed")
    return found


def disassembled(cubin: Path) -> dict[str, str]:
    """Machine code as text, a kernel."""
    done = subprocess.run([tool("nvdisasm"), "-c", str(cubin)], capture_output=True, text=True, check=True)
    parts = re.split(r"^\s*\.section\s+\.text\.(\w+).*$", done.stdout, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def products(text: str) -> list[tuple[str, str, int]]:
    """Machine opcode, first operand and descriptor word of each product."""
    moved: dict[str, int] = {}
    found = []
    for line in text.splitlines():
        if move := re.search(r"\bU?MOV (U?R\d+), (0x[0-9a-f]+)", line):
            moved[move[1]] = int(move[2], 16)
        elif move := re.search(r"\bR2UR (?:\w+, )?(UR\d+), (R\d+)", line):
            moved[move[1]] = moved.get(move[2], -1)
        if product := re.search(r"\b(UTC\wMMA[.\w]*) (\w+)\[.*idesc\[(UR\d+)\]", line):
            found.append((product[1], product[2], moved.get(product[3], -1)))
    return found


def test_fields_agree_with_the_disassembly(tmp_path: Path) -> None:
    head = ".version 8.8\n.target sm_100a\n.address_size 64\n.extern .shared .align 1024 .b8 mem[];\n"
    kernels = (_KERNEL.format(n=n, word=x.word(), instruction=x.instruction()) for n, x in enumerate(ASKED))
    (tmp_path / "k.ptx").write_text(head + "".join(kernels))
    assemble = [tool("ptxas-blackwell"), "-arch=sm_100a", str(tmp_path / "k.ptx"), "-o", str(tmp_path / "k.cubin")]
    done = subprocess.run(assemble, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    code = disassembled(tmp_path / "k.cubin")
    for n, asked in enumerate(ASKED):
        ((opcode, left, word),) = products(code[f"k{n}"])
        assert opcode.split(".")[0] == _MACHINE[asked.kind], asked
        assert (".2CTA" in opcode) == (asked.group == 2), asked
        assert (left == "tmem") == asked.a_in_memory, asked
        spec = tcgen05.decode(word, asked.kind, asked.scaled)
        fields: dict[str, Any] = {k: getattr(spec, k) for k in ("kind", "a", "b", "d", "m", "n", "scale_format")}
        fields |= {k: getattr(spec, k) for k in ("negate_a", "negate_b", "a_transposed", "b_transposed")}
        assert fields == {k: getattr(asked, k) for k in fields}, f"{word:#010x}"


@pytest.mark.parametrize(("dtype", "kind", "element"), [
    ("bfloat16", "f16", "bf16"), ("float8_e4m3fn", "f8f6f4", "e4m3"),
    *(pytest.param(*x, marks=pytest.mark.slow) for x in (
        ("float16", "f16", "f16"), ("float32", "tf32", "tf32"), ("float8_e5m2", "f8f6f4", "e5m2"))),
])  # fmt: skip
def test_descriptors_of_triton(dtype: str, kind: str, element: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="Triton launches on torch tensors")
    pytest.importorskip("triton", reason="the words are Triton's")
    import simulated_kernels as K

    from kcontract.dynamic.engines.simulator.driver import simulate

    a, b = (torch.randn(128, 64).clamp(-2, 2).to(getattr(torch, dtype)) for _ in range(2))
    c = torch.empty(128, 128)
    with simulate("sm_100"):
        made = K.matmul[(1, 1)](a, b, c, 128, 128, 64, BM=128, BN=128, BK=64, STAGES=1, TRANS=True)
    torch.testing.assert_close(c, a.float() @ b.float().t(), rtol=1e-2, atol=1e-1)
    (tmp_path / "k.cubin").write_bytes(made.asm["cubin"])
    found = [p for text in disassembled(tmp_path / "k.cubin").values() for p in products(text)]
    assert found
    for opcode, _, word in found:
        spec = tcgen05.decode(word, kind, False)
        assert opcode.split(".")[0] == _MACHINE[kind]
        assert (spec.m, spec.n, spec.a, spec.b, spec.d) == (128, 128, element, element, "f32")
