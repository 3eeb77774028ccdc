"""Reading TTGIR, beside Triton's own parser and walk: one line a module, the ratio of the two times last.

    PYTHONPATH=src python benchmarks/ttgir_reader.py FILE.ttgir …     or, without files, modules compiled here

``read`` is ``parse`` alone; ``all`` also asks every operation for its types, attributes and place.
"""

from __future__ import annotations

import pathlib
import sys
import tempfile
import time
from collections.abc import Callable

from kcontract.ir.ttgir import parse

ROOT = pathlib.Path(__file__).resolve().parents[1]
NAMED = (
    "elementwise-fp32-sm90",
    "reductions-fp16-sm90",
    "matmul-fp16-sm90",
    "matmul-fp16-sm100",
    "attention-fp16-sm100",
)


def best(work: Callable[[], object], repeat: int = 15) -> float:
    """Milliseconds of processor time of the fastest of some runs."""
    times = []
    for _ in range(repeat):
        start = time.thread_time()
        work()
        times.append(time.thread_time() - start)
    return min(times) * 1e3


def read_all(text: str) -> None:
    for operation in parse(text).walk():
        _ = (operation.attributes, operation.location, [value.type for value in operation.results])


def triton_walk(path: str) -> None:
    from triton._C.libtriton import ir, nvidia

    context = ir.context()
    ir.load_dialects(context)
    nvidia.load_dialects(context)
    ir.parse_mlir_module(path, context).walk(lambda operation: operation.get_name())


def compiled(folder: pathlib.Path) -> list[pathlib.Path]:
    """The named kernels, compiled into ``folder``."""
    sys.path.insert(0, str(ROOT / "tests" / "ir" / "ttgir"))
    from ttgir_corpus import cases, modules

    paths = []
    for wanted in NAMED:
        arguments = next(arguments for name, arguments in cases() if name.endswith(wanted))
        path = folder / f"{wanted}.ttgir"
        path.write_text(modules(*arguments)["ttgir"])
        paths.append(path)
    return paths


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        paths = [pathlib.Path(name) for name in sys.argv[1:]] or compiled(pathlib.Path(folder))
        for path in paths:
            text = path.read_text()
            read, everything = best(lambda text=text: parse(text)), best(lambda text=text: read_all(text))
            triton = best(lambda path=path: triton_walk(str(path)))
            print(
                f"{path.stem}: {len(text) / 1e3:.1f} kB, read {read:.2f} ms ({len(text) / read / 1e3:.1f} MB/s), "
                f"all {everything:.2f} ms, Triton's parser and walk {triton:.2f} ms, read / Triton {read / triton:.2f}"
            )


if __name__ == "__main__":
    main()
