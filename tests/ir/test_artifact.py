import json
import os
import shutil
from pathlib import Path

import compiled
import pytest

from kcontract.errors import InputError
from kcontract.ir.artifact import Artifact
from kcontract.ir.files import LIMITS
from kcontract.ir.loaders import Problem, load_cache, load_files
from kcontract.ir.target import TABLE, Target


@pytest.fixture
def cache(tmp_path):
    """A cache folder with one specialisation of ``add`` for sm_90, and that entry's folder."""
    source = Path(next(iter(compiled.add_for(90).metadata_group.values()))).parent
    entry = tmp_path / "cache" / source.name
    shutil.copytree(source, entry)
    return entry.parent, entry


def split(found):
    found = list(found)
    return [item for item in found if isinstance(item, Artifact)], [str(i) for i in found if isinstance(i, Problem)]


# Live compiles.


def test_the_listeners_view_and_the_compiled_kernel_give_the_same_artifact():
    kernel = compiled.add_for(90)
    metadata = json.loads(Path(kernel.metadata_group["add.json"]).read_text())
    seen = Artifact.from_compiled({**metadata, "target": kernel.metadata.target}, kernel.metadata_group)
    made = Artifact.from_compiled(kernel.metadata, kernel.asm)
    assert (seen.kernel, seen.target) == (made.kernel, made.target) == ("add", TABLE[90])
    assert (seen.ttgir, seen.ptx, seen.cubin) == (made.ttgir, made.ptx, made.cubin)
    assert seen.key == made.key and len(seen.key) == 32
    assert seen.origin == str(Path(kernel.metadata_group["add.ptx"]).parent)
    assert seen.program.entry.name == "add" and seen.resources.threads == 128
    assert "sass" not in kernel.asm, "nothing was disassembled"


def test_listeners_are_given_what_from_compiled_takes(monkeypatch, tmp_path):
    triton, seen = compiled.triton, []

    def listener(*, src, metadata, metadata_group, times, cache_hit):
        seen.append(Artifact.from_compiled(metadata, metadata_group))

    source = compiled.ASTSource(compiled.add, {"x": "*fp32", "y": "*fp32", "out": "*fp32", "n": "i32"}, {"BLOCK": 256})
    source.signature["BLOCK"] = "constexpr"
    with triton.knobs.cache.scope(), triton.knobs.compilation.scope():
        triton.knobs.cache.dir = str(tmp_path)
        triton.knobs.compilation.listener = listener
        for _ in range(2):
            triton.compile(source, target=compiled.GPUTarget("cuda", 80, 32))
    miss, hit = seen
    assert miss.key == hit.key and miss.target is hit.target is TABLE[80] and miss.resources == hit.resources


def test_hip_is_named_and_nothing_of_it_is_read():
    metadata = {"target": compiled.GPUTarget("hip", "gfx942", 64), "name": "add"}
    made = Artifact.from_compiled(metadata, {"add.ttgir": "/nowhere/add.ttgir", "add.hsaco": "/nowhere/add.hsaco"})
    assert (made.kernel, made.target.vendor, made.ttgir) == ("add", "amd", None)
    assert made.module is None and made.program is None and made.resources.threads is None


def test_a_file_cleaned_between_compile_and_check_is_a_sentence(tmp_path):
    with pytest.raises(InputError, match="is gone; another process may have cleaned the cache"):
        Artifact.from_compiled({"target": 90}, {"add.ptx": str(tmp_path / "add.ptx")})
    with pytest.raises(InputError, match="names no target"):
        Artifact.from_compiled({}, {})


# Cache folders.


def test_a_cache_of_real_compiles_loads_whole():
    kernels = list(compiled.corpus())
    folder = Path(next(iter(kernels[0].metadata_group.values()))).parents[1]
    artifacts, problems = split(load_cache(folder))
    assert {a.key for a in artifacts} >= {Artifact.from_compiled(k.metadata, k.asm).key for k in kernels}
    assert all(a.metadata["hash"] and a.ptx and a.cubin and a.ttgir for a in artifacts) and problems == []


def test_a_moved_cache_is_read_where_it_is(cache):
    root, entry = cache
    shutil.rmtree(entry.parent / "elsewhere", ignore_errors=True)
    group = entry / "__grp__add.json"
    group.write_text(group.read_text().replace(str(entry), "/nowhere"))
    (artifact,), problems = split(load_cache(root))
    assert (artifact.kernel, artifact.target, problems) == ("add", TABLE[90], [])
    assert artifact.origin == str(entry / "add")


def test_binaries_alone_are_an_artifact_without_texts(cache):
    root, entry = cache
    for kind in ("ttgir", "ttir", "llir", "ptx"):
        (entry / f"add.{kind}").unlink()
    (artifact,), problems = split(load_cache(root))
    assert artifact.ttgir is None and artifact.ptx is None and artifact.resources.registers and problems == []


def test_an_entry_without_metadata_takes_its_target_from_the_texts(cache):
    root, entry = cache
    (entry / "add.json").unlink()
    (artifact,), problems = split(load_cache(root))
    assert artifact.target is TABLE[90] and artifact.resources.dynamic_shared is None and problems == []
    (entry / "add.ttgir").unlink()
    ((artifact,), _) = split(load_cache(root))
    assert artifact.target is TABLE[90]
    (entry / "add.ptx").unlink()
    ((artifact,), _) = split(load_cache(root))
    assert artifact.target is TABLE[90], "a cubin names its capability"


def test_metadata_alone_is_a_problem(cache):
    root, entry = cache
    for path in entry.iterdir():
        if path.suffix in (".ttgir", ".ptx", ".cubin"):
            path.unlink()
    artifacts, (problem,) = split(load_cache(root))
    assert artifacts == [] and problem.endswith("describes a kernel whose .ttgir, .ptx and .cubin are missing")


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("add.json", b"", "is empty"),
        ("add.json", b"{", "is not the JSON that Triton writes"),
        ("add.json", b"[1]", "no object"),
        ("add.json", b"\0" * 100, "binary file"),
        ("add.json", b'{"a":' * 200_000, "nested too deeply"),
        ("add.json", b"[" * 1_000_000, "nested too deeply"),
        ("add.json", b'{"shared": ' + b"9" * 10_000 + b"}", "a number of 10000 digits"),
        ("add.json", b" " * (LIMITS["json"] + 1), f"larger than {LIMITS['json']} bytes"),
    ],
)
def test_bad_metadata_is_a_problem_and_the_texts_are_still_read(cache, name, content, sentence):
    root, entry = cache
    (entry / name).write_bytes(content)
    (artifact,), (problem,) = split(load_cache(root))
    assert problem.startswith(str(entry / name)) and sentence in problem
    assert artifact.target is TABLE[90] and artifact.resources.dynamic_shared is None


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("add.ptx", b"", "is empty"),
        ("add.ttgir", b"\0\1\2", "binary file"),
        ("add.json", b'{"target": "a toaster"}', "'a toaster' names no GPU"),
    ],
)
def test_an_entry_that_cannot_be_read_is_a_problem_of_one_sentence(cache, name, content, sentence):
    root, entry = cache
    (entry / name).write_bytes(content)
    artifacts, (problem,) = split(load_cache(root))
    assert artifacts == [] and sentence in problem and "\n" not in problem


def test_a_file_of_a_hundred_megabytes_is_refused_unread(cache):
    root, entry = cache
    with open(entry / "add.ptx", "wb") as file:
        file.truncate(100 * 2**20)
    (artifact,), (problem,) = split(load_cache(root))
    assert artifact.ptx is None and artifact.ttgir and problem.endswith("the most that is read of such a file")


def test_other_backends_are_named_and_left_alone(cache):
    root, _ = cache
    hip = root / "HIPHIPHIP"
    hip.mkdir()
    (hip / "add.ttgir").write_text('module attributes {ttg.target = "hip:gfx942"} {\n}\n')
    (hip / "mul.hsaco").write_bytes(b"\x7fELF")
    (hip / "mul.json").write_text("{}")
    found = list(load_cache(root))
    problems = [item for item in found if isinstance(item, Problem)]
    assert [item.is_fault for item in problems] == [False, False]
    assert "is compiled for gfx942, which kcontract leaves alone" in str(problems[0])
    assert "holds a kernel for AMD GPUs" in str(problems[1])
    assert len(found) == 3, "the NVIDIA kernel beside them is loaded"


def test_what_triton_keeps_beside_kernels_is_passed_over(cache):
    root, entry = cache
    (root / "launcher").mkdir()
    (root / "launcher" / "__triton_launcher.cpython-311-x86_64-linux-gnu.so").write_bytes(b"\x7fELF")
    (entry / "add.autotune.json").write_text('{"configs_timings": []}')
    (entry / "add.ptx.tmp.pid_7_1").write_text("half")
    (entry / "tmp.pid_7_abc").mkdir()
    (entry / "tmp.pid_7_abc" / "add.ptx").write_text("half")
    artifacts, problems = split(load_cache(root))
    assert len(artifacts) == 1 and problems == []


def test_links_in_circles_are_followed_once(cache):
    root, entry = cache
    (entry / "up").symlink_to(root)
    (entry / "self.ptx").symlink_to(entry / "self.ptx")
    (entry / "gone.ttgir").symlink_to(entry / "nothing")
    artifacts, problems = split(load_cache(root))
    assert len(artifacts) == 1 and len(problems) == 3
    assert "is a link back to a folder that was read before" in problems[2]
    assert "gone.ttgir: is gone" in problems[0] and "self.ptx: cannot be read" in problems[1]


def test_pipes_and_folders_are_never_waited_for(cache):
    root, entry = cache
    os.mkfifo(entry / "pipe.ptx")
    (entry / "folder.ptx").mkdir()
    artifacts, problems = split(load_cache(root))
    assert len(artifacts) == 1 and problems == [f"{entry / 'pipe.ptx'}: is not a regular file"]


def test_what_may_not_be_read_is_a_problem(cache, monkeypatch):
    root, entry = cache
    really_open = os.open

    def refuse(path, *arguments, **options):
        if str(path).endswith("add.ptx"):
            raise PermissionError(13, "Permission denied", path)
        return really_open(path, *arguments, **options)

    monkeypatch.setattr(os, "open", refuse)
    (artifact,), (problem,) = split(load_cache(root))
    assert artifact.ptx is None and problem == f"{entry / 'add.ptx'}: cannot be read: permission denied"


def test_files_that_vanish_while_the_folder_is_read_are_problems(cache):
    root, entry = cache
    for name in ("B" * 8, "C" * 8):
        shutil.copytree(entry, root / name)
    reading = load_cache(root)
    next(reading)
    for path in (root / "CCCCCCCC").iterdir():
        path.unlink()
    (root / "CCCCCCCC").rmdir()
    artifacts, problems = split(reading)
    assert len(artifacts) == 1 and problems == [f"{root / 'CCCCCCCC'}: cannot be listed: no such file or directory"]


def test_a_folder_that_is_none_is_a_sentence(tmp_path):
    with pytest.raises(InputError, match="cannot be listed: no such file or directory"):
        list(load_cache(tmp_path / "nothing"))


def test_a_name_that_cannot_be_printed_gives_way_to_the_files(cache):
    root, entry = cache
    metadata = json.loads((entry / "add.json").read_text())
    for name in ("a\nb", "\ud800", "", 7, "x" * 2000):
        (entry / "add.json").write_text(json.dumps({**metadata, "name": name}))
        ((artifact,), _) = split(load_cache(root))
        assert artifact.kernel == "add"


# Loose files.


def test_files_of_one_stem_are_one_kernel(tmp_path):
    kernel = compiled.matmul_for(100)
    for kind in ("ttgir", "ptx", "cubin", "ttir"):
        content = kernel.asm[kind]
        (tmp_path / f"m.{kind}").write_bytes(content if isinstance(content, bytes) else str(content).encode())
    (artifact,), problems = split(load_files([tmp_path / "m.ptx", tmp_path / "m.ttgir"]))
    assert (artifact.kernel, artifact.target, problems) == ("m", TABLE[100], [])
    assert artifact.ttgir and artifact.cubin, "files beside the given ones are read too"


def test_loose_files_that_are_none_are_problems(tmp_path):
    (tmp_path / "a.txt").write_text("")
    (tmp_path / "b.ttir").write_text("module {}")
    (tmp_path / "c.ptx").write_text("hello")
    (tmp_path / "d.json").write_text('{"a": 1}')
    names = ["a.txt", "b.ttir", "c.ptx", "d.json", "e.cubin", "f"]
    artifacts, problems = split(load_files(tmp_path / name for name in names))
    assert artifacts == [] and len(problems) == 6
    wanted = [
        "a.txt: is none of .ttgir, .ptx, .cubin and .json",
        "f: is none of .ttgir, .ptx, .cubin and .json",
        "b.ttir: is IR from before layouts were chosen; give the .ttgir",
        "c: names no target: it has neither metadata nor ttg.target nor .target",
        "d.json: is metadata of no kernel",
        "e.cubin: is gone",
    ]
    for sentence in wanted:
        assert any(sentence in problem for problem in problems), sentence


def test_bytes_that_are_no_utf8_do_not_stop_the_reading(tmp_path):
    text = compiled.add_for(90).asm["ptx"].replace("compiled.py", "compil\udce9.py").encode("utf-8", "surrogateescape")
    (tmp_path / "k.ptx").write_bytes(text)
    ((artifact,), _) = split(load_files([tmp_path / "k.ptx"]))
    assert "\ufffd" in artifact.ptx and str(artifact.program.instructions).isprintable()
    assert artifact.target is Target.parse("sm_90")
