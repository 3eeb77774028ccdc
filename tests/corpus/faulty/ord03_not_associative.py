"""A recurrence scanned with its step, which is not associative: the result depends on how the scan is cut."""

import torch
import triton
import triton.language as tl

SOURCE = "own: an associative scan over a step that is not associative"
EXPECT = ("ORD-03",)
ALSO = "values"


@triton.jit
def step(left, right):
    return left * 0.9999 + right


@triton.jit
def affine(left, sum_left, right, sum_right):
    return left * right, sum_left * right + sum_right


@triton.jit
def scan(x, out, n, BLOCK: tl.constexpr, MENDED: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + at, at < n, 0.0).to(tl.float32)
    if MENDED:
        _, y = tl.associative_scan((tl.full((BLOCK,), 0.9999, tl.float32), v), 0, affine)
    else:
        y = tl.associative_scan(v, 0, step)
    tl.store(out + row * n + at, y, at < n)


class Model(torch.nn.Module):
    def forward(self, x):
        state, states = torch.zeros_like(x[:, 0]), []
        for t in range(x.shape[1]):
            state = 0.9999 * state + x[:, t]
            states.append(state)
        return torch.stack(states, 1)


class ModelNew(torch.nn.Module):
    mended = False

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        n = x.shape[1]
        scan[(x.shape[0],)](x, out, n, BLOCK=triton.next_power_of_2(max(n, 16)), MENDED=self.mended)
        return out


class Repaired(ModelNew):
    mended = True


def get_inputs():
    return [torch.rand(8, 40)]


def get_init_inputs():
    return []
