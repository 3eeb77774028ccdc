"""What the compiler makes of the kernels for GPUs that are not here: budgets, matrix units, and a known fault of the
pipeliner.
"""

from __future__ import annotations

import itertools

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

import triton.language as tl  # noqa: E402
from compile_only import compile_one, instead_of_launching, refilled_in_flight  # noqa: E402

from kcontract.kernels.gdn import launch  # noqa: E402
from kcontract.kernels.gdn.problem import Problem  # noqa: E402

SHARED = {90: 232_448, 100: 232_448, 120: 101_376}  # bytes a block: CUDA's maximum for these targets
COLUMNS = 512  # of Tensor Memory


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory):
    with triton.knobs.cache.scope():
        triton.knobs.cache.dir = str(tmp_path_factory.mktemp("triton"))
        yield


def compile_all(
    target, plan=None, K=128, V=128, dtype=torch.bfloat16, HV=8, channelwise=False, backward=True, monkeypatch=None
):
    """Every kernel of a call, for ``target``, as the launcher would choose them on a device of that kind with 132
    processors.
    """
    monkeypatch.setattr(launch, "describe", lambda _: launch.Device(132, SHARED[target], target // 10))
    if plan is not None:
        monkeypatch.setattr(launch, "plan", lambda *_: plan)
    B, T, H = 2, 2048, 8
    p = Problem(B, T, H, HV, K, V, B, channelwise, 0.1)
    draw = lambda *shape, dtype=dtype: torch.empty(B, T, *shape, device="meta", dtype=dtype)  # noqa: E731
    q, k, v, beta = draw(H, K), draw(H, K), draw(HV, V), draw(HV, dtype=torch.float32)
    g = draw(HV, *([K] if channelwise else []), dtype=torch.float32)
    chunks = launch.locate(p, q, None)
    with instead_of_launching(target) as made:
        _, _, x = launch.forward(p, chunks, q, k, v, g, beta, None, True)
        if backward:
            launch.backward(p, chunks, q, k, v, g, beta, x.kept, None, v, None)
    return made


def within_budget(made, target):
    for kernel in made:
        assert kernel.shared <= SHARED[target], kernel
        assert kernel.tmem <= COLUMNS, kernel


@pytest.mark.parametrize("plan", [launch.Plan(64, 4, 2), launch.Plan(128, 1, 2)], ids=["split", "wide"])
def test_hopper_uses_wgmma_within_budget_and_refills_no_stage_in_use(plan, monkeypatch):
    made = compile_all(90, plan, monkeypatch=monkeypatch)
    within_budget(made, 90)
    for kernel in made:
        assert kernel.count("wgmma.mma_async") > 0 and kernel.count("mma.sync") == 0, kernel.name
        assert refilled_in_flight(kernel.ttgir) == [], kernel.name
    backward = [kernel.name for kernel in made if made.index(kernel) >= (3 if plan.segments > 1 else 2)]
    assert len(backward) <= 4, backward


def test_two_programs_of_the_hopper_backward_fit_on_a_multiprocessor_and_its_scans_spill_nothing(monkeypatch):
    scans, gradients = compile_all(90, monkeypatch=monkeypatch)[-2:]
    assert (scans.name, gradients.name) == ("backward_scans", "backward_gradients")
    for kernel in (scans, gradients):
        assert 2 * (kernel.shared + 1024) <= 233_472  # bytes of a multiprocessor, 1 KB of them the driver's a block
        assert kernel.count("wgmma.mma_async") > 0
    assert scans.spilled == 0 and gradients.spilled <= 300


def test_no_left_operand_is_a_transposed_accumulator(monkeypatch):
    """Triton 3.4 to 3.7.0 miscompile `tl.dot(tl.trans(accumulator), x)`: on sm_90 its operand has a parent that is no
    MMA layout.
    """
    for kernel in compile_all(90, launch.Plan(64, 4, 2), monkeypatch=monkeypatch):
        operands = [line for line in kernel.ttgir.splitlines() if "dot_op<{opIdx = 0" in line]
        assert all("parent = #mma" in line for line in operands)
        turned = {line.split(" = ")[0].strip() for line in kernel.ttgir.splitlines() if "tt.trans" in line}
        for line in kernel.ttgir.splitlines():
            if "warp_group_dot " in line:
                assert not turned & set(line.split("warp_group_dot ")[1].split(",")[:1]), line


def test_blackwell_forward_uses_tcgen05_within_budget(monkeypatch):
    made = compile_all(100, backward=False, monkeypatch=monkeypatch)
    within_budget(made, 100)
    assert all(kernel.count("tcgen05.mma") > 0 and kernel.count("mma.sync") == 0 for kernel in made)


SIZES = [(64, 64), (64, 256), (128, 64), (128, 128), (256, 64), (256, 256)]


@pytest.mark.slow
@pytest.mark.parametrize("target", [90, 100, 120])
@pytest.mark.parametrize(("K", "V"), SIZES)
@pytest.mark.parametrize("channelwise", [False, True])
def test_every_size_offered_compiles_within_budget(target, K, V, channelwise, monkeypatch):
    made = compile_all(target, K=K, V=V, HV=16, channelwise=channelwise, monkeypatch=monkeypatch)
    within_budget(made, target)
    for kernel in made:
        small_tiles = K == 256 and kernel.name == "scan"
        assert target != 100 or (kernel.count("tcgen05.mma") > 0) != small_tiles, kernel


FLOAT32 = [
    pytest.param(*case, marks=[] if case == (120, 64, False) else pytest.mark.slow)  # a sample for the default run
    for case in itertools.product([90, 100, 120], [64, 128, 256], [False, True])
]


@pytest.mark.parametrize(("target", "size", "channelwise"), FLOAT32)
def test_float32_compiles_within_budget(target, size, channelwise, monkeypatch):
    made = compile_all(target, K=size, V=size, dtype=torch.float32, channelwise=channelwise, monkeypatch=monkeypatch)
    within_budget(made, target)
    for kernel in made:
        assert target != 100 or (kernel.count("tcgen05.mma") > 0) == (kernel.name != "scan"), kernel


@triton.jit
def _one_stage(a, b, out, n, TWICE: tl.constexpr):
    i = tl.arange(0, 64)
    square = i[:, None] * 64 + i[None, :]
    acc = tl.zeros((64, 64), dtype=tl.float32)
    total = 0.0
    for step in tl.range(0, n, num_stages=2):
        x = tl.load(a + step * 4096 + square)
        y = tl.load(b + step * 4096 + square)
        if TWICE:
            total += tl.sum(tl.sum(y.to(tl.float32), 1), 0)
        acc = tl.dot(x, y, acc)
    tl.store(out + square, acc + total)


@pytest.mark.parametrize("twice", [True, False], ids=["fires", "silent"])
def test_the_pipeliner_check_fires_on_the_fault_and_not_on_its_twin(twice):
    tensor = torch.empty(16, device="meta", dtype=torch.bfloat16)
    out = torch.empty(16, device="meta", dtype=torch.float32)
    kernel = compile_one(_one_stage, (tensor, tensor, out, 8), {"TWICE": twice, "num_warps": 4}, 90)
    assert bool(refilled_in_flight(kernel.ttgir)) == twice
