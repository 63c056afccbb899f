"""Trains on one rank as a launcher starts it: NCCL, a group and a mesh of its own, DDP."""

import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group(
    "nccl",
    init_method=f"file://{tempfile.mkdtemp()}/meet",
    rank=0,
    world_size=1,
    device_id=torch.device("cuda", 0),
)
group = dist.new_group([0], backend="nccl")
mesh = dist.init_device_mesh("cuda", (1,))
model = DistributedDataParallel(nn.Linear(8, 8).cuda(), device_ids=[0])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    loss = model(torch.ones(2, 8, device="cuda")).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    total = loss.detach()
    dist.all_reduce(total, group=group)
    dist.all_reduce(total, group=mesh.get_group())
    print(f"loss {total.item():.3f}")
dist.destroy_process_group()
