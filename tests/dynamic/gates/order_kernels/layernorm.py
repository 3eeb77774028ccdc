"""Layer normalisation with weights: two passes, and one."""

import torch
import triton
import triton.language as tl


@triton.jit
def norm_kernel(x, w, b, o, n, eps, ONE_PASS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + c, c < n, 0.0).to(tl.float32)
    mean = tl.sum(v, 0) / n
    d = tl.where(c < n, v - mean, 0.0)
    variance = tl.sum(v * v, 0) / n - mean * mean if ONE_PASS else tl.sum(d * d, 0) / n
    y = d / tl.sqrt_rn(variance + eps)
    y = y * tl.load(w + c, c < n, 0.0) + tl.load(b + c, c < n, 0.0)
    tl.store(o + row * n + c, y, c < n)


class Model(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)

    def forward(self, x):
        return self.norm(x)


class ModelNew(Model):
    one_pass = False

    def forward(self, x):
        x = x.contiguous()
        o = torch.empty_like(x)
        n = x.shape[-1]
        norm_kernel[(x.numel() // n,)](
            x, self.norm.weight, self.norm.bias, o, n, self.norm.eps, self.one_pass, triton.next_power_of_2(n)
        )
        return o


class OnePass(ModelNew):
    one_pass = True


def get_inputs():
    return [torch.randn(4, 256)]


def get_init_inputs():
    return [256]
