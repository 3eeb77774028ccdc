import re
import struct
import subprocess
from pathlib import Path

import compiled
import pytest
from triton.backends.nvidia.compiler import get_ptxas

from kcontract.errors import InputError
from kcontract.ir.cubin import read


def cuobjdump(cubin, folder):
    """The (registers, stack, shared) that NVIDIA's own tool prints."""
    path = folder / "kernel.cubin"
    path.write_bytes(cubin)
    tool = Path(get_ptxas(80).path).with_name("cuobjdump")
    text = subprocess.run([tool, "-res-usage", path], capture_output=True, text=True, check=True).stdout
    return tuple(map(int, re.search(r"REG:(\d+) STACK:(\d+) SHARED:(\d+)", text).groups()))


def ptxas(kernel, target, folder):
    """The (spill stores, spill loads) in bytes that the assembler prints, called as Triton calls it."""
    path = folder / "kernel.ptx"
    path.write_text(kernel.asm["ptx"])
    architecture = re.search(r"\.target (\w+)", kernel.asm["ptx"])[1]
    tool = get_ptxas(target)
    levels = ["--regAllocOptLevel=2"] if "blackwell" in tool.path and not compiled.triton.__version__ < "3.9" else []
    command = [tool.path, "-v", "-lineinfo", *levels, f"--gpu-name={architecture}", path, "-o", folder / "out"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    return tuple(map(int, re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", text).groups()))


def test_registers_stack_and_shared_memory_equal_cuobjdump(tmp_path):
    for kernel in compiled.corpus():
        content = kernel.asm["cubin"]
        cubin = read(content)
        assert cubin.capability == kernel.metadata.target.arch
        code = cubin.functions[kernel.metadata.name]
        registers, stack, shared = cuobjdump(content, tmp_path)
        # From sm_90 on the tool counts the KiB that the system keeps in every block with shared memory.
        reserved = 1024 if shared and cubin.capability >= 90 else 0
        assert (code.registers, code.frame, code.static_shared) == (registers, stack, shared - reserved)
        assert code.threads == (32 * kernel.metadata.num_warps, 1, 1)


@pytest.mark.parametrize(("target", "bound"), [(80, 64), (90, 96), (100, 96), (120, 64)])
def test_spilled_bytes_equal_what_ptxas_prints(target, bound, tmp_path):
    kernel = compiled.matmul_for(target, inner=32, maxnreg=bound)
    code = read(kernel.asm["cubin"]).functions["matmul"]
    assert (code.local_stores, code.local_loads) == ptxas(kernel, target, tmp_path)
    assert code.local_stores > 0


def test_static_shared_memory_leaves_the_systems_out(tmp_path):
    for architecture in ("sm_80", "sm_90a", "sm_120a"):
        source = tmp_path / "kernel.ptx"
        source.write_text(f"""
.version 8.7
.target {architecture}
.address_size 64
.visible .entry k(.param .u64 k_0) {{
 .shared .align 4 .b8 buffer[300];
 .reg .b32 %r<4>; .reg .b64 %rd<2>;
 ld.param.u64 %rd1, [k_0]; mov.u32 %r1, %tid.x; mov.u32 %r2, buffer;
 st.shared.b32 [%r2], %r1; bar.sync 0; ld.shared.b32 %r3, [%r2+4]; st.global.b32 [%rd1], %r3; ret;
}}""")
        out = tmp_path / "kernel.cubin"
        subprocess.run([get_ptxas(100).path, f"--gpu-name={architecture}", source, "-o", out], check=True)
        assert read(out.read_bytes()).functions["k"].static_shared == 300


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a cubin"),
        (b"\x7fELF\x02\x01", "not a cubin"),
        (b"x" * 1000, "not a cubin"),
        (Path("/proc/self/exe").read_bytes()[:4096], "another machine"),
        (b"\x7fELF\x02\x01\x01\x41" + b"\0" * 10 + struct.pack("<H", 190) + b"\xff" * 44, "damaged"),
    ],
)
def test_what_is_no_cubin_is_a_sentence(content, message):
    with pytest.raises(InputError, match=message):
        read(content)


def test_a_cubin_cut_anywhere_is_a_sentence():
    content = compiled.add_for(90).asm["cubin"]
    (table,) = struct.unpack_from("<Q", content, 40)
    end = table + 64 * struct.unpack_from("<H", content, 60)[0]
    for cut in range(0, end, 97):
        with pytest.raises(InputError):
            read(content[:cut])


def test_sections_that_all_name_the_same_code_are_a_sentence():
    content = bytearray(compiled.add_for(90).asm["cubin"])
    (table,) = struct.unpack_from("<Q", content, 40)
    count, names = struct.unpack_from("<HH", content, 60)
    rows = [bytes(content[table + 64 * i : table + 64 * (i + 1)]) for i in range(count)]
    (start,) = struct.unpack_from("<Q", rows[names], 24)
    texts = [row for row in rows if content[start + struct.unpack_from("<I", row)[0] :].startswith(b".text.add\0")]
    assert len(texts) == 1
    struct.pack_into("<Q", content, 40, len(content))
    struct.pack_into("<H", content, 60, count + 3000)
    with pytest.raises(InputError, match="damaged"):
        read(bytes(content) + b"".join(rows) + texts[0] * 3000)
    struct.pack_into("<H", content, 60, count)
    assert read(bytes(content) + b"".join(rows)).functions["add"].registers
