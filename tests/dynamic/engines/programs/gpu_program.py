"""What GPU programs do beside launching; each line would fail on a torch without CUDA."""

import copy
import io
import threading

import torch
import torch.utils.checkpoint
import triton
from torch import nn

cuda = torch.device("cuda", 0)
capability = torch.cuda.get_device_capability()
assert torch.cuda.is_available() and torch.cuda.device_count() == 1
assert capability == triton.runtime.driver.active.get_device_capability(0)
properties = torch.cuda.get_device_properties(0)
assert (properties.major, properties.minor) == capability
assert (
    properties.multi_processor_count
    == triton.runtime.driver.active.utils.get_device_properties(0)["multiprocessor_count"]
)

# Allocations, in every spelling.
made = [
    torch.zeros(4, device="cuda"),
    torch.zeros(4, device="cuda:0"),
    torch.zeros(4, device=0),
    torch.tensor([1.0], device=cuda),
    torch.randn(4).cuda(),
    torch.randn(4).to("cuda"),
    torch.randn(4).to(cuda, torch.float16),
    torch.randn(4).to(device="cuda", dtype=torch.float16),
    torch.randn(4, pin_memory=True),
    torch.zeros(4).new_empty(3, device="cuda"),
    torch.randn(4, generator=torch.Generator(device="cuda").manual_seed(1), device="cuda"),
]
made += [torch.ones_like(t, device="cuda") for t in made]
assert all(t.is_cuda and t.device == cuda and t.device.index == 0 and t.get_device() == 0 for t in made)
assert not any(t.is_cpu for t in made)
assert torch.empty(1000, device="cuda").count_nonzero() == 0
assert torch.empty(3, device="meta").device.type == "meta"

model = nn.Linear(4, 4, device="cuda").cuda().to("cuda")
assert model.weight.is_cuda and model(torch.ones(1, 4, device="cuda")).is_cuda
with torch.autocast("cuda", dtype=torch.bfloat16):
    assert torch.is_autocast_enabled("cuda")
    assert model(torch.ones(1, 4, device="cuda")).dtype is torch.bfloat16
tiny = torch.full((2, 2), 1 / 3, dtype=torch.half)
with torch.autocast("cuda", dtype=torch.bfloat16):  # passed by: the sum keeps float32
    wide = torch.mm(tiny, tiny, out_dtype=torch.float32)
    torch.addmm(wide, tiny, tiny, out_dtype=torch.float32, out=wide)
assert torch.equal(wide, 2 * (tiny.float() @ tiny.float())), wide

# Streams, events, graphs, contexts.
stream = torch.cuda.Stream()
start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
with torch.cuda.device(0), torch.cuda.stream(stream), torch.cuda.nvtx.range("name"):
    start.record(stream)
    stream.wait_stream(torch.cuda.current_stream())
    end.record()
torch.cuda.synchronize()
assert start.elapsed_time(end) > 0
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    made[0] += 1
graph.replay()
torch.cuda.empty_cache()
assert torch.cuda.memory_allocated() == 0
assert triton.testing.do_bench(lambda: None) > 0

# Gradients, checkpoints, torch.compile (switched off), pickles.
x = torch.ones(2, 4, device="cuda", requires_grad=True)
torch.utils.checkpoint.checkpoint(torch.compile(model), x, use_reentrant=False).sum().backward()
assert x.grad.is_cuda and model.weight.grad.is_cuda
file = io.BytesIO()
torch.save(model.state_dict(), file)
file.seek(0)
model.load_state_dict(torch.load(file, map_location="cuda"))
assert copy.deepcopy(model).weight.is_cuda

# Other threads see the same.
seen = []
thread = threading.Thread(target=lambda: seen.append(torch.empty(3, device="cuda").is_cuda))
thread.start()
thread.join()
assert seen == [True]
print("capability", capability)
