"""Values for a module's parameters that show what its initial ones hide."""

from __future__ import annotations

import copy
from typing import Any

import torch


def randomised(module: Any, seed: int) -> Any:
    """A module with its parameters moved off identity, so that leaving one out shows.

    A constant parameter (1 for a scale, 0 for a shift) becomes constant ± 0.25 … 0.75, any other is left as its
    initialisation drew it; a running variance is drawn in [0.5, 1.5], a running mean around 0.
    """
    generator = torch.Generator().manual_seed(seed + 1)
    module = copy.deepcopy(module)
    with torch.no_grad():
        for t in module.parameters():
            if t.is_floating_point() and t.numel() and bool((t == t.reshape(-1)[0]).all()):
                size = torch.rand(t.shape, generator=generator) / 2 + 0.25
                t += (size * (torch.randint(0, 2, t.shape, generator=generator) * 2 - 1)).to(t)
        for name, t in module.named_buffers():
            if t.is_floating_point() and name.endswith(("running_mean", "running_var")):
                drawn = torch.rand(t.shape, generator=generator)
                t.copy_(drawn + 0.5 if name.endswith("var") else drawn - 0.5)
    return module


def redrawn(module: Any) -> Any:
    """A module whose floating parameters hold other values of about the same size: 1.25 times their neighbours'."""
    module = copy.deepcopy(module)
    with torch.no_grad():
        for t in module.parameters():
            if t.is_floating_point() and t.numel():
                t.copy_(t.reshape(-1).roll(1).reshape(t.shape) * 1.25)
    return module
