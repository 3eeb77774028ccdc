"""A float32 matrix product: tl.dot as it is (tf32 factors)."""

import torch
from product import Float32Atomics, ModelNew  # noqa: F401


class Model(torch.nn.Module):
    def forward(self, a, b):
        return a @ b


def get_inputs():
    return [torch.randn(16, 128), torch.randn(128, 16)]
