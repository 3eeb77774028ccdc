"""One configuration steps by 128 through a loop counted in whole steps: it drops the end of the row."""

import torch
import triton
import triton.language as tl

SOURCE = "own: a configuration that is wrong, and never chosen at the size that is tested"
EXPECT = ("CFG-01",)


def fitting(configs, arguments, **rest):
    fit = [c for c in configs if c.kwargs["STEP"] <= 64 or arguments["n"] > 100000]
    return fit or configs


@triton.autotune(
    [triton.Config({"STEP": 64}), triton.Config({"STEP": 128})],
    key=["n"],
    prune_configs_by={"early_config_prune": fitting},
)
@triton.jit
def total(x, out, n, STEP: tl.constexpr, MENDED: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, STEP)
    steps = tl.cdiv(n, STEP) if MENDED else tl.cdiv(n, 64) * 64 // STEP
    value = 0.0
    for k in range(steps):
        value += tl.sum(tl.load(x + row * n + k * STEP + at, k * STEP + at < n, 0.0).to(tl.float32), 0)
    tl.store(out + row, value)


class Model(torch.nn.Module):
    def forward(self, x):
        return x.sum(dim=1)


class ModelNew(torch.nn.Module):
    mended = False

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
        total[(x.shape[0],)](x, out, x.shape[1], MENDED=self.mended)
        return out


class Repaired(ModelNew):
    mended = True


def get_inputs():
    return [torch.randn(8, 192)]


def get_init_inputs():
    return []
