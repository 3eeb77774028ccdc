"""Allocates as on a GPU and launches each kind of kernel; run by several tests."""

import launched
import torch
import triton

device = triton.runtime.driver.active.get_active_torch_device()
x = torch.rand(1000, device=device)
out = torch.empty_like(x)
for n in (1000, 992):
    launched.add[(triton.cdiv(n, 256),)](x, x, out, n, BLOCK=256)
launched.add[(8,)](x, x, out, 992, BLOCK=128)
launched.scale[lambda meta: (triton.cdiv(1000, meta["BLOCK"]),)](x, out, 1000)
launched.picky[(1,)](x, 1000)
launched.kills_the_compiler[(1,)](x)
try:
    launched.does_not_compile[(1,)](x)
except triton.CompilationError:
    print("caught, as on a GPU")
print("to the end", out.sum().item())
