"""The variable alone makes kcontract active, wherever Python starts, and costs nothing where it is not set."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import SOURCE, World

COMPILE = "import kernels_used as k; k.compile(k.clean)"
LOADED = "import sys; print([name for name in sys.modules if name.split('.')[0] in ('kcontract', 'triton', 'torch')])"


@pytest.mark.parametrize("mode", [None, "", "0"])
def test_unset_loads_nothing_and_checks_nothing(world: World, mode: str | None) -> None:
    assert world.run(LOADED, mode) == "[]\n"
    assert world.run(COMPILE, mode) == ""
    assert world.checked() == []


@pytest.mark.parametrize("mode", ["off", "False"])
def test_off_in_words_checks_nothing(world: World, mode: str) -> None:
    assert world.run(COMPILE, mode) == ""
    assert world.checked() == []


def test_set_waits_for_triton_without_importing_it(world: World) -> None:
    assert world.run(LOADED) == "['kcontract', 'kcontract._boot']\n"


@pytest.mark.parametrize("flags", [(), ("-I",), ("-E", "-s"), ("-P",)])
def test_flags_of_python(world: World, flags: tuple[str, ...]) -> None:
    if flags == ("-P",) and sys.version_info < (3, 11):
        pytest.skip("-P came with Python 3.11")
    world.run(COMPILE, flags=flags)
    assert world.checked() == ["clean"]


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_child_processes(world: World, method: str) -> None:
    code = f"""
import multiprocessing
from child import work
if __name__ == "__main__":
    with multiprocessing.get_context({method!r}).Pool(2) as pool:
        pool.map(work, [128, 256, 512])
"""
    child = "import kernels_used as k\ndef work(n):\n    k.compile(k.clean, n)\n"
    (world.folder / "child.py").write_text(child)
    world.run(code)
    assert world.checked() == ["clean"] * 3


def test_threads(world: World) -> None:
    world.run(
        "import kernels_used as k\n"
        "from concurrent.futures import ThreadPoolExecutor\n"
        "list(ThreadPoolExecutor(4).map(lambda n: k.compile(k.clean, n), [128, 256, 512, 128, 256, 512]))"
    )
    assert world.checked() == ["clean"] * 3


def test_pth_read_twice(world: World) -> None:
    code = "import sysconfig, site; site.addsitedir(sysconfig.get_path('platlib'));" + COMPILE
    world.run(code, FAKE_RULES="1")
    assert world.checked() == ["clean"]


def test_module_imported_before_start_is_hooked(world: World) -> None:
    code = "import triton, os; os.environ['TRITON_KCONTRACT'] = '1'; from kcontract import _boot; _boot.start();"
    world.run(code + COMPILE, None)
    assert world.checked() == ["clean"]


def test_left_over_pth_is_silent(tmp_path: Path) -> None:
    shutil.copy(SOURCE / "kcontract" / "kcontract.pth", tmp_path)
    code = f"import site; site.addsitedir({str(tmp_path)!r}); print('alive')"
    environment = {**os.environ, "TRITON_KCONTRACT": "1"}
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "alive\n", "")


def test_a_failing_hook_leaves_triton_alone(world: World) -> None:
    broken = "import sys; sys.modules['kcontract.hook'] = None;"
    assert "kcontract: not active: ModuleNotFoundError" in world.run(broken + COMPILE)


def test_interpreter_gets_a_sentence(world: World) -> None:
    code = "import kernels_used, kernels_used as k; print(type(k.clean).__name__)"
    output = world.run(code, TRITON_INTERPRET="1")
    assert output.count("kcontract: ") == 1
    assert "TRITON_INTERPRET is set" in output
    assert "InterpretedFunction" in output


def test_the_module_keeps_its_own_loader(world: World) -> None:
    code = "import triton.knobs as k; print(type(k.__loader__).__name__, type(k.__spec__.loader).__name__)"
    assert world.run(code) == "SourceFileLoader SourceFileLoader\n"


def test_the_finder_goes_when_nothing_is_left_to_wait_for(world: World) -> None:
    code = """
import sys, types
from kcontract._boot import Waiter
waiter = next(f for f in sys.meta_path if isinstance(f, Waiter))
import triton.knobs
assert "triton.knobs" not in waiter.waiting
for name in list(waiter.waiting):
    waiter.waiting[name] = lambda module: None
    waiter.arrived(types.ModuleType(name))
assert waiter not in sys.meta_path
"""
    world.run(code)
