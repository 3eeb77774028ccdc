import launched
import torch

x = torch.ones(32, device="cuda")
out = torch.empty_like(x)
launched.add[(1,)](x, x, out, 32, BLOCK=32)
assert out[0] == 2, "wrong sum"
