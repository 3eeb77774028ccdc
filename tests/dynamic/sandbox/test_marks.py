"""Code that a candidate has loaded beside torch's and the system's."""

from __future__ import annotations

import ctypes
import shutil
import sysconfig
from pathlib import Path

from kcontract.dynamic.sandbox import marks


def test_a_library_from_elsewhere_is_native_code(tmp_path: Path) -> None:
    before = marks.native_code()
    own = next(Path(sysconfig.get_path("stdlib"), "lib-dynload").glob("*.so"))
    copied = shutil.copy(own, tmp_path / "kernels.so")
    ctypes.CDLL(str(own))
    assert marks.native_code() == before
    ctypes.CDLL(str(copied))
    assert marks.native_code() - before == {str(copied)}


def test_the_stubs_that_triton_compiles_are_not(tmp_path: Path) -> None:
    before = marks.native_code()
    own = next(Path(sysconfig.get_path("stdlib"), "lib-dynload").glob("*.so"))
    ctypes.CDLL(str(shutil.copy(own, tmp_path / "__triton_launcher.so")))
    assert marks.native_code() == before
