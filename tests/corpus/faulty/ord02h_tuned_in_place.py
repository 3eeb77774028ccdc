"""An accumulating kernel is tuned on the caller's buffer: a first call at a size not met before adds once a trial."""

import torch
import triton
import triton.language as tl

SOURCE = "triton-lang/triton #6547, #7181, #9230"
EXPECT = ("CFG-01",)
ENGINE = "sim:sm_90"
ALSO = ("CMP-01", "CMP-03", "ORD-01", "ORD-02", "ORD-03", "EXC-01", "EXC-02", "PRC-01", "MEM-01", "HON-01")


def accumulate(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, at < n).to(tl.float32)
    tl.store(out + at, tl.load(out + at, at < n) + v * v, at < n)


CONFIGS = [triton.Config({"BLOCK": 1024}), triton.Config({"BLOCK": 2048})]
tuned = triton.autotune(CONFIGS, key=["n"])(triton.jit(accumulate))
restored = triton.autotune(CONFIGS, key=["n"], reset_to_zero=["out"])(triton.jit(accumulate))


class Model(torch.nn.Module):
    def forward(self, x):
        return x * x


class ModelNew(torch.nn.Module):
    kernel = tuned

    def __init__(self):
        super().__init__()
        self(torch.zeros(64, 640, device="cuda"))

    def forward(self, x):
        x = x.contiguous()
        out = torch.zeros(x.shape, dtype=torch.float32, device=x.device)
        n = x.numel()
        self.kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, out, n)
        return out.to(x.dtype)


class Repaired(ModelNew):
    kernel = restored


def get_inputs():
    return [torch.randn(64, 640)]


def get_init_inputs():
    return []
