"""The simulator against an sm_90 GPU, bit by bit.

    python benchmarks/simulator_vs_gpu.py prepare BUNDLE [--kernels 500] [--part I/N]   # compiles: needs Triton
    python benchmarks/simulator_vs_gpu.py gpu BUNDLE [OUT]   # on the GPU machine: needs numpy and libcuda only
    python benchmarks/simulator_vs_gpu.py compare BUNDLE     # anywhere: simulates and compares

BUNDLE is a folder. Three parts: random kernels without contraction, which must agree to the bit; approximate
instructions over their whole range, whose error on both sides is measured in units in the last place; matrix products,
where each accumulation model of the simulator is compared with the GPU's bits. Results go to BUNDLE/results.json.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
HERE = Path(__file__).resolve().parent
TESTS = HERE.parent / "tests" / "dynamic" / "simulator"

_ASM = 'tl.inline_asm_elementwise("{}.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)'
_APPROXIMATE = {
    "exp2": "tl.exp2(x)", "exp": "tl.exp(x)", "log2": "tl.log2(x)", "sin": "tl.sin(x)", "cos": "tl.cos(x)",
    "sqrt": "tl.sqrt(x)", "rsqrt": "tl.rsqrt(x)", "div_full": "1.0 / x", "sigmoid": "tl.sigmoid(x)",
    "tanh_approx": _ASM.format("tanh.approx"),
    "rcp_approx": _ASM.format("rcp.approx.ftz"),
    "ex2_approx": _ASM.format("ex2.approx"),
    "lg2_approx": _ASM.format("lg2.approx"),
    "sin_approx": _ASM.format("sin.approx"),
    "cos_approx": _ASM.format("cos.approx"),
}  # fmt: skip
_SOURCE = """import triton
import triton.language as tl


@triton.jit
def kernel(x_in, out, N: tl.constexpr):
    at = tl.program_id(0) * N + tl.arange(0, N)
    x = tl.load(x_in + at)
    tl.store(out + at, {})
"""
_TRUTH = {
    "exp2": np.exp2, "exp": np.exp, "log2": np.log2, "sin": np.sin, "cos": np.cos, "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x), "div_full": lambda x: 1 / x, "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh_approx": np.tanh, "rcp_approx": lambda x: 1 / x, "ex2_approx": np.exp2, "lg2_approx": np.log2,
    "sin_approx": np.sin, "cos_approx": np.cos,
}  # fmt: skip
#: Patterns of float32 that approximate instructions are tried on: every 4099-th, which reaches all exponents.
_POINTS = 1 << 20
_DOTS = (("fp16", "fp32"), ("bf16", "fp32"), ("fp16", "fp16"), ("fp8e4nv", "fp32"), ("fp8e5", "fp32"), ("fp32", "tf32"))


def points() -> np.ndarray[Any, Any]:
    """2**20 float32 values spread over all bit patterns."""
    return (np.arange(_POINTS, dtype="u8") * 4096 + 1237).astype("u4").view("f4")


def matrices(kind: str, seed: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """64x64 operands as bits."""
    from kcontract.dynamic.engines.simulator import values

    rng = np.random.default_rng(seed)
    a, b = (
        rng.standard_normal((64, 64)).astype("f4") * rng.choice([0.01, 1, 30], (64, 64)).astype("f4") for _ in range(2)
    )
    name = {"fp16": "f16", "bf16": "bf16", "fp8e4nv": "e4m3", "fp8e5": "e5m2"}.get(kind)
    return (a, b) if name is None else (values.encode(a, name, finite=True), values.encode(b, name, finite=True))


def prepare(folder: Path, kernels: int, part: int, parts: int) -> None:
    """Compile each ``parts``-th launch from number ``part`` on into FOLDER/bundle_PART.zip."""
    os.environ["TRITON_DEFAULT_FP_FUSION"] = "0"
    os.environ.setdefault("TRITON_CACHE_DIR", tempfile.mkdtemp())
    sys.path.insert(0, str(TESTS))
    import random_kernels
    import simulated_kernels as K
    import triton
    import triton.language as tl
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    target = GPUTarget("cuda", 90, 32)
    types = {"f": "*fp32", "h": "*fp16", "b": "*bf16", "i": "*i32"}
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"bundle_{part}.zip"
    jobs: list[dict[str, Any]] = []
    turn = itertools.count()
    sources = Path(tempfile.mkdtemp())

    def compiled(fn: Any, signature: dict[str, str], constants: dict[str, Any], warps: int) -> Any:
        names = fn.arg_names
        full = {n: signature.get(n, "constexpr") for n in names}
        attrs = {(i,): [["tt.divisibility", 16]] for i, n in enumerate(names) if full[n].startswith("*")}
        source = ASTSource(fn, full, {(names.index(k),): v for k, v in constants.items()}, attrs)
        return triton.compile(source, target=target, options={"num_warps": warps, "enable_fp_fusion": False})

    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:

        def add(
            name: str,
            kernel: Any,
            inputs: list[tuple[str, Any]],
            outputs: list[tuple[str, list[int], str]],
            grid: int,
            **more: Any,
        ) -> None:
            archive.writestr(f"{name}.cubin", kernel.asm["cubin"])
            archive.writestr(f"{name}.ptx", kernel.asm["ptx"])
            for label, data in inputs:
                archive.writestr(f"{name}.{label}", data.tobytes())
            jobs.append({
                "name": name, "entry": kernel.metadata.name, "shared": kernel.metadata.shared,
                "warps": kernel.metadata.num_warps,
                "inputs": [[label, str(data.dtype), list(data.shape)] for label, data in inputs],
                "outputs": [[label, shape, dtype] for label, shape, dtype in outputs], "grid": grid, **more,
            })  # fmt: skip

        def mine() -> bool:
            return next(turn) % parts == part

        for seed in range(kernels):
            if not mine():
                continue
            program = random_kernels.make(10_000 + seed)
            fn = random_kernels.load(program.source, sources, f"random_{seed}")
            signature = {**{n: types[k] for n, k in random_kernels.INPUTS.items()}, "f_out": "*fp32", "i_out": "*i32"}
            kernel = compiled(fn, signature, {"N": program.size}, program.warps)
            shape = [random_kernels.OUTPUTS, program.size]
            add(
                f"random_{seed}",
                kernel,
                list(program.inputs(seed).items()),
                [("f_out", shape, "f4"), ("i_out", shape, "i4")],
                1,
                part="random",
                seed=10_000 + seed,
            )
        for name, text in _APPROXIMATE.items():
            if not mine():
                continue
            source = _SOURCE.format(text)
            fn = random_kernels.load(source, sources, f"approximate_{name}")
            kernel = compiled(fn, {"x_in": "*fp32", "out": "*fp32"}, {"N": 1024}, 4)
            add(
                f"approximate_{name}",
                kernel,
                [("x_in", points())],
                [("out", [_POINTS], "f4")],
                _POINTS // 1024,
                part="approximate",
                function=name,
            )
        for warps in (1, 4):
            for kind, acc in _DOTS:
                for seed in range(8):
                    if not mine():
                        continue
                    result = "fp16" if acc == "fp16" else "fp32"
                    constants = {
                        "M": 64,
                        "N": 64,
                        "K": 64,
                        "PRECISION": "tf32",
                        "ACC": tl.float16 if acc == "fp16" else tl.float32,
                    }
                    kernel = compiled(K.dot, {"a": f"*{kind}", "b": f"*{kind}", "c": f"*{result}"}, constants, warps)
                    a, b = matrices(kind, seed)
                    name = f"dot_{kind}_{acc}_{warps}_{seed}"
                    add(
                        name,
                        kernel,
                        [("a", a), ("b", b)],
                        [("c", [64, 64], "f2" if acc == "fp16" else "f4")],
                        1,
                        part="dot",
                        kind=kind,
                        acc=acc,
                        unit="wgmma" if "wgmma" in kernel.asm["ptx"] else "mma",
                    )
        archive.writestr("jobs.json", json.dumps(jobs))
    print(f"{path}: {len(jobs)} launches, {path.stat().st_size / 1e6:.1f} MB")


def archives(folder: Path) -> Iterator[tuple[zipfile.ZipFile, dict[str, Any]]]:
    """Every launch of a bundle, with the archive it is in."""
    for path in sorted(folder.rglob("bundle_*.zip")):
        with zipfile.ZipFile(path) as archive:
            for job in json.loads(archive.read("jobs.json")):
                yield archive, job


def gpu(folder: Path, out: Path) -> None:
    """Run every launch through the CUDA driver and keep the outputs in ``out``/outputs.npz."""
    cuda = ctypes.CDLL("libcuda.so.1")

    def check(status: int, what: str) -> None:
        if status:
            raise SystemExit(f"{what} failed with status {status}")

    check(cuda.cuInit(0), "cuInit")
    context = ctypes.c_void_p()
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), "context")
    check(cuda.cuCtxSetCurrent(context), "context")
    found: dict[str, np.ndarray[Any, Any]] = {}
    for archive, job in archives(folder):
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        check(cuda.cuModuleLoadData(ctypes.byref(module), archive.read(job["name"] + ".cubin")), job["name"])
        check(cuda.cuModuleGetFunction(ctypes.byref(function), module, job["entry"].encode()), job["name"])
        check(cuda.cuFuncSetAttribute(function, 8, job["shared"]), "shared memory")
        pointers: list[ctypes.c_uint64] = []

        def allocate(data: bytes, pointers: list[ctypes.c_uint64] = pointers) -> ctypes.c_uint64:
            place = ctypes.c_uint64()
            check(cuda.cuMemAlloc_v2(ctypes.byref(place), ctypes.c_size_t(len(data))), "cuMemAlloc")
            check(cuda.cuMemcpyHtoD_v2(place, data, ctypes.c_size_t(len(data))), "copy in")
            pointers.append(place)
            return place

        for label, _, _ in job["inputs"]:
            allocate(archive.read(f"{job['name']}.{label}"))
        results = []
        for label, shape, dtype in job["outputs"]:
            array = np.zeros(shape, dtype)
            results.append((label, array, allocate(array.tobytes())))
        slots = [*pointers, ctypes.c_uint64(0), ctypes.c_uint64(0)]
        arguments = (ctypes.c_void_p * len(slots))(*(ctypes.addressof(s) for s in slots))
        status = cuda.cuLaunchKernel(
            function, job["grid"], 1, 1, 32 * job["warps"], 1, 1, job["shared"], None, arguments, None
        )
        check(status, f"launch of {job['name']}")
        check(cuda.cuCtxSynchronize(), f"run of {job['name']}")
        for label, array, place in results:
            check(
                cuda.cuMemcpyDtoH_v2(array.ctypes.data_as(ctypes.c_void_p), place, ctypes.c_size_t(array.nbytes)),
                "copy out",
            )
            found[f"{job['name']}.{label}"] = array
        for place in pointers:
            cuda.cuMemFree_v2(place)
        cuda.cuModuleUnload(module)
    out.mkdir(parents=True, exist_ok=True)
    small = {k: v for k, v in found.items() if not k.startswith("approximate")}
    np.savez_compressed(out / "outputs.npz", **small)
    large = {k: v for k, v in found.items() if k.startswith("approximate")}
    halves = list(large.items())
    for part in range(0, len(halves), 3):
        np.savez_compressed(out / f"outputs_{part // 3}.npz", **dict(halves[part : part + 3]))
    print(f"{len(found)} arrays of {sum(v.nbytes for v in found.values()) / 1e6:.1f} MB")


def ulps(x: np.ndarray[Any, Any], truth: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """|x - truth| in units of the last place of the float32 nearest to truth, where both are normal and finite."""
    near = truth.astype("f4")
    good = np.isfinite(near) & np.isfinite(x) & (np.abs(near) >= np.float32(2.0**-126))
    unit = np.spacing(np.abs(near[good])).astype("f8")
    return np.abs(x[good].astype("f8") - truth[good]) / unit


def simulated(job: dict[str, Any], archive: zipfile.ZipFile, accumulate: str = "fp32") -> dict[str, Any]:
    """Outputs of one launch in the simulator."""
    from kcontract.dynamic.engines.simulator.engine import prepare as ready
    from kcontract.dynamic.engines.simulator.kernel import decode
    from kcontract.dynamic.engines.simulator.options import Options

    buffers: dict[str, Any] = {}
    for label, dtype, shape in job["inputs"]:
        buffers[label] = np.frombuffer(archive.read(f"{job['name']}.{label}"), dtype).reshape(shape).copy()
    outputs = {label: np.zeros(shape, dtype) for label, shape, dtype in job["outputs"]}
    kernel = decode(archive.read(job["name"] + ".ptx").decode())
    run = ready(
        kernel,
        (job["grid"], 1, 1),
        {**buffers, **outputs},
        job["shared"],
        options=Options(accumulate=accumulate),
        warps=job["warps"],
    )
    run.run()
    return outputs


def compare(folder: Path) -> None:
    gpu_outputs: dict[str, Any] = {}
    for path in sorted(folder.rglob("outputs*.npz")):
        gpu_outputs.update(np.load(path))
    report: dict[str, Any] = {
        "random": {"kernels": 0, "equal": 0, "values": 0, "different": 0, "examples": []},
        "approximate": {},
        "dot": {},
    }
    for archive, job in archives(folder):
        name = job["name"]
        if job["part"] == "random":
            mine = simulated(job, archive)
            bad = 0
            for label, array in mine.items():
                theirs = gpu_outputs[f"{name}.{label}"]
                same = array.view("u4") == theirs.view("u4")
                if array.dtype == np.float32:
                    same |= np.isnan(array) & np.isnan(theirs)
                bad += int((~same).sum())
                report["random"]["values"] += same.size
            report["random"]["kernels"] += 1
            report["random"]["equal"] += bad == 0
            report["random"]["different"] += bad
            if bad and len(report["random"]["examples"]) < 10:
                report["random"]["examples"].append([job["seed"], bad])
        elif job["part"] == "approximate":
            x = np.nan_to_num(points(), nan=1.0).astype("f8")
            with np.errstate(all="ignore"):
                truth = _TRUTH[job["function"]](x)
            mine, theirs = simulated(job, archive)["out"], gpu_outputs[f"{name}.out"]
            both = np.isfinite(mine) & np.isfinite(theirs)
            report["approximate"][job["function"]] = {
                "gpu_most_ulp": round(float(ulps(theirs, truth).max()), 2),
                "simulator_most_ulp": round(float(ulps(mine, truth).max()), 2),
                "equal_bits": round(float((mine.view("u4") == theirs.view("u4")).mean()), 4),
                "most_difference_absolute": float(np.abs(mine[both].astype("f8") - theirs[both]).max()),
                "finite_on_one_side_only": int((np.isfinite(mine) != np.isfinite(theirs)).sum()),
            }  # fmt: skip
        else:
            theirs = gpu_outputs[f"{name}.c"].astype("f8")
            entry = report["dot"].setdefault(
                f"{job['unit']} {job['kind']} {job['acc']}",
                {"launches": 0, "fp32_equal": [], "hardware_equal": [], "fp32_error": [], "hardware_error": []},
            )
            entry["launches"] += 1
            for mode in ("fp32", "hardware"):
                mine = simulated(job, archive, mode)["c"].astype("f8")
                entry[f"{mode}_equal"].append(float((mine == theirs).mean()))
                entry[f"{mode}_error"].append(float(np.abs(mine - theirs).max() / np.abs(theirs).max()))
    for entry in report["dot"].values():
        for key in ("fp32_equal", "hardware_equal"):
            entry[key] = round(float(np.mean(entry[key])), 4)
        for key in ("fp32_error", "hardware_error"):
            entry[key] = float(np.max(entry[key]))
    (folder / "results.json").write_text(json.dumps(report, indent=1) + "\n")
    r = report["random"]
    print(
        f"random kernels: {r['equal']} of {r['kernels']} equal to the bit; {r['different']} of {r['values']} "
        f"values differ"
    )
    for function, e in report["approximate"].items():
        print(
            f"{function:12} GPU {e['gpu_most_ulp']:10.2f} ulp  simulator {e['simulator_most_ulp']:6.2f} ulp  equal "
            f"bits {e['equal_bits']:.4f}"
        )
    for kind, e in report["dot"].items():
        print(
            f"{kind:22} equal: fp32 {e['fp32_equal']:.4f} hardware {e['hardware_equal']:.4f}; relative error fp32 "
            f"{e['fp32_error']:.1e} hardware {e['hardware_error']:.1e}"
        )


def main() -> None:
    command, folder = sys.argv[1], Path(sys.argv[2])
    if command == "prepare":
        kernels = int(sys.argv[sys.argv.index("--kernels") + 1]) if "--kernels" in sys.argv else 500
        part, _, parts = (sys.argv[sys.argv.index("--part") + 1] if "--part" in sys.argv else "0/1").partition("/")
        prepare(folder, kernels, int(part), int(parts))
    elif command == "gpu":
        gpu(folder, Path(sys.argv[3]) if len(sys.argv) > 3 else folder)
    elif command == "compare":
        compare(folder)
    else:
        raise SystemExit(__doc__)


if __name__ == "__main__":
    main()
