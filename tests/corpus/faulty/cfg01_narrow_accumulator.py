"""One configuration keeps its sum in bfloat16; the tuner picks it for long rows only."""

import torch
import triton
import triton.language as tl

SOURCE = "own: a configuration with another accumulator"
EXPECT = ("CFG-01",)
ALSO = ("PRC-02",)


def fitting(configs, arguments, **rest):
    fit = [c for c in configs if not c.kwargs["NARROW"] or arguments["n"] > 100000]
    return fit or configs


@triton.autotune(
    [triton.Config({"NARROW": False}), triton.Config({"NARROW": True})],
    key=["n"],
    prune_configs_by={"early_config_prune": fitting},
)
@triton.jit
def mean(x, out, n, NARROW: tl.constexpr, MENDED: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, 32)
    kind = tl.bfloat16 if NARROW and not MENDED else tl.float32
    value = tl.zeros((32,), kind)
    for k in range(0, n, 32):
        value += tl.load(x + row * n + k + at, k + at < n, 0.0).to(kind)
    tl.store(out + row, tl.sum(value.to(tl.float32), 0) / n)


class Model(torch.nn.Module):
    def forward(self, x):
        return x.mean(dim=1)


class ModelNew(torch.nn.Module):
    mended = False

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
        mean[(x.shape[0],)](x, out, x.shape[1], MENDED=self.mended)
        return out


class Repaired(ModelNew):
    mended = True


def get_inputs():
    return [torch.rand(8, 192)]


def get_init_inputs():
    return []
