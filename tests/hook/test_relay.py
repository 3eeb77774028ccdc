"""Children without a stderr hand their findings to the parent, and a process tree says each finding once."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest

from .conftest import World

FAKE = {"FAKE_RULES": "1"}

COMPILE_HAZARD = "import kernels_used as k; k.compile(k.hazard)"
MUTE_CHILD = """
import subprocess, sys
def child(*names):
    code = "import kernels_used as k\\n" + "\\n".join(f"k.compile(k.{name})" for name in names)
    subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
"""


def left_over(world: World) -> list[Path]:
    return list(world.temporary.glob("kcontract-*"))


def test_a_parent_without_triton_speaks_for_its_mute_child_when_it_ends(world: World) -> None:
    output = world.run(MUTE_CHILD + "child('hazard', 'clean', 'violation'); child('hazard')", **FAKE)
    assert output.count("found a hazard") == 1
    assert output.count("found a violation") == 1
    assert world.checked() == ["hazard", "clean", "violation", "hazard"]
    assert left_over(world) == []


def test_the_parent_does_not_check_what_its_child_has_checked(world: World) -> None:
    code = MUTE_CHILD + "import kernels_used as k; child('hazard', 'clean'); k.compile(k.hazard); k.compile(k.clean)"
    output = world.run(code, **FAKE)
    assert output.count("found a hazard") == 1
    assert world.checked() == ["hazard", "clean"]


def test_the_parent_speaks_at_its_next_compile(world: World) -> None:
    code = MUTE_CHILD + (
        "import kernels_used as k, time\n"
        "child('hazard'); k.compile(k.clean); print('after', file=sys.stderr); time.sleep(0)\n"
    )
    output = world.run(code, **FAKE)
    assert output.index("found a hazard") < output.index("after")


def test_error_mode_still_refuses_in_the_parent(world: World) -> None:
    code = """
import subprocess, sys
code = "import kernels_used as k\\ntry: k.compile(k.violation)\\nexcept Exception: pass"
subprocess.run([sys.executable, "-c", code], stderr=subprocess.DEVNULL, check=True)
import kernels_used as k
from kcontract.errors import KContractViolation
try:
    k.compile(k.violation)
except KContractViolation:
    print("refused")
"""
    output = world.run(code, "error", **FAKE)
    assert "refused\n" in output
    assert world.checked() == ["violation"]
    assert output.count("violation[by-name]") == 1


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_forked_children_say_a_finding_once(world: World, method: str) -> None:
    (world.folder / "child.py").write_text("import kernels_used as k\ndef work(n):\n    k.compile(k.hazard)\n")
    code = f"""
import multiprocessing
from child import work
if __name__ == "__main__":
    context = multiprocessing.get_context({method!r})
    children = [context.Process(target=work, args=(n,)) for n in range(3)]
    for child in children: child.start()
    for child in children: child.join()
"""
    output = world.run(code, **FAKE)
    assert output.count("found a hazard") == 1
    assert world.checked() == ["hazard"] * 3


def test_a_child_with_a_stderr_of_its_own_speaks_for_itself(world: World) -> None:
    code = MUTE_CHILD.replace("stderr=subprocess.DEVNULL", "stderr=subprocess.PIPE") + "child('hazard')"
    assert "found a hazard" not in world.run(code, **FAKE)
    assert world.checked() == ["hazard"]


def test_a_silenced_program_stays_silent_and_reports(world: World) -> None:
    environment = world.environment("1", **FAKE)
    command = [world.python, "-c", COMPILE_HAZARD]
    subprocess.run(command, env=environment, cwd=world.folder, stderr=subprocess.DEVNULL, check=True)
    subprocess.run(["sh", "-c", 'exec "$0" -c "$1" 2>&-', *map(str, command[::2])], env=environment, check=True)
    assert world.checked() == ["hazard"] * 2
    assert left_over(world) == []


def test_a_killed_parent_leaves_its_child_working(world: World) -> None:
    orphan = "import os, time\nwhile os.getppid() == {}: time.sleep(0.01)\n" + COMPILE_HAZARD
    code = (
        MUTE_CHILD
        + f"""
import os
code = {orphan!r}.format(os.getpid())
subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
os.kill(os.getpid(), 9)
"""
    )
    started = world.start(code, **FAKE)
    started.wait(60)
    deadline = time.monotonic() + 60
    while not world.report.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.2)
    assert json.loads(world.report.read_text().splitlines()[0])["rule"] == "by-name"
    assert left_over(world) == []
