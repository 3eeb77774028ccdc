"""One configuration, for even sizes, repeats the last element instead of masking: at other sizes it counts it again."""

import torch
import triton
import triton.language as tl

SOURCE = "own: a configuration that promises what nobody checked"
EXPECT = ("CFG-01",)
ALSO = ("MEM-01",)


def fitting(configs, arguments, **rest):
    fit = [c for c in configs if not c.kwargs["EVEN"] or arguments["n"] > 100000]
    return fit or configs


@triton.autotune(
    [triton.Config({"EVEN": False}), triton.Config({"EVEN": True})],
    key=["n"],
    prune_configs_by={"early_config_prune": fitting},
)
@triton.jit
def scaled(x, w, out, n, EVEN: tl.constexpr, MENDED: tl.constexpr):
    row = tl.program_id(0)
    total = 0.0
    for k in range(0, n, 64):
        at = k + tl.arange(0, 64)
        if EVEN and not MENDED:
            v = tl.load(x + row * n + tl.minimum(at, n - 1)).to(tl.float32)
            s = tl.load(w + tl.minimum(at, n - 1)).to(tl.float32)
        else:
            v = tl.load(x + row * n + at, at < n, 0.0).to(tl.float32)
            s = tl.load(w + at, at < n, 0.0).to(tl.float32)
        total += tl.sum(v * s, 0)
    tl.store(out + row, total)


class Model(torch.nn.Module):
    def forward(self, x, w):
        return (x * w).sum(dim=1)


class ModelNew(torch.nn.Module):
    mended = False

    def forward(self, x, w):
        x, w = x.contiguous(), w.contiguous()
        out = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
        scaled[(x.shape[0],)](x, w, out, x.shape[1], MENDED=self.mended)
        return out


class Repaired(ModelNew):
    mended = True


def get_inputs():
    return [torch.randn(8, 200), torch.randn(200)]


def get_init_inputs():
    return []
