"""Captures a CUDA graph of a launch among operations of torch, and replays it."""

import torch
import triton
import triton.language as tl


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)


x = torch.ones(100, device="cuda")
total = torch.zeros(100, device="cuda")
calls = torch.zeros(1, device="cuda")


def step():
    """total += 2 x, by way of a new tensor and a view."""
    twice = (x * 2).view(-1)
    out = torch.empty_like(twice)
    add[(1,)](twice, total, out, 100, BLOCK=128)
    total.copy_(out)
    calls.add_(1)
    return out + 0.5


graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    assert torch.cuda.is_current_stream_capturing()
    result = step()
assert not torch.cuda.is_current_stream_capturing()
assert total.sum() == 0 and calls == 0, "nothing is done while it is captured"
for value in (1.0, 10.0):
    x.fill_(value)
    graph.replay()
assert torch.equal(total, torch.full((100,), 22.0)), total
assert torch.equal(result, torch.full((100,), 22.5)), result
assert calls == 2
print("replayed twice")
