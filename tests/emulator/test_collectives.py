"""torch.distributed on the emulated device: no wait where NCCL has none, the data where it goes."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

from harness.audit.emulated.emulated_audit import EmulatedAudit
from harness.emulator.cuda.process_groups import BUCKETS_NOTE, NCCL_NOTE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(
    not (dist.is_available() and dist.is_gloo_available()), reason="needs gloo"
)
MODES = pytest.mark.parametrize("mode", ["values", "shapes"])


@contextmanager
def world_of_one(mode: Any, backend: str | None = "nccl") -> Iterator[EmulatedAudit]:
    with tempfile.TemporaryDirectory() as folder, EmulatedAudit(mode=mode) as audit:
        audit.record(False)
        dist.init_process_group(backend, init_method=f"file://{folder}/store", rank=0, world_size=1)
        yield audit


def train(audit: EmulatedAudit, net: nn.Module, steps: int = 4) -> None:
    """Steps after the first are recorded, and read nothing."""
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    x = torch.randn(4, 8, device="cuda")
    for step in range(steps):
        net(x).square().mean().backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step == 0:
            audit.record(True)


def small() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))


@MODES
@pytest.mark.parametrize("backend", ["nccl", None, "cpu:gloo,cuda:nccl"])
def test_ddp_reads_nothing(mode: Any, backend: str | None) -> None:
    with world_of_one(mode, backend) as audit:
        train(audit, nn.parallel.DistributedDataParallel(small().cuda(), device_ids=[0]))
    assert audit.report.syncs_per_step == 0
    assert {NCCL_NOTE, BUCKETS_NOTE} <= set(audit.report.notes)
    assert not dist.is_initialized()


@MODES
def test_fsdp2_reads_nothing(mode: Any) -> None:
    with world_of_one(mode) as audit:
        net = small().cuda()
        fully_shard(net[0])
        fully_shard(net)
        assert net[0].weight.device == torch.device("cuda", 0)
        assert "gapless" not in repr(net[0].weight)
        train(audit, net)
    assert audit.report.syncs_per_step == 0


@MODES
@pytest.mark.filterwarnings("ignore:FSDP is switching:UserWarning")
def test_fsdp1_moves_its_module_and_reads_nothing(mode: Any) -> None:
    with world_of_one(mode) as audit:
        net = FullyShardedDataParallel(small(), device_id=0, use_orig_params=True)
        assert next(net.parameters()).is_cuda
        train(audit, net)
    assert audit.report.syncs_per_step == 0


@MODES
def test_tensor_parallel_reads_nothing(mode: Any) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    with world_of_one(mode) as audit:
        mesh = init_device_mesh("cuda", (1,))
        net = parallelize_module(
            small().cuda(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()}
        )
        train(audit, net)
        shards = distribute_tensor(torch.ones(4, 4, device="cuda"), mesh, [Shard(0)])
        assert shards.device == torch.device("cuda", 0)
        assert shards.is_cuda
        assert shards.full_tensor().shape == (4, 4)
    assert audit.report.syncs_per_step == 0


def test_what_waits_is_counted() -> None:
    with world_of_one("values") as audit:
        audit.record(True)
        x = torch.ones(4, device="cuda")
        dist.all_reduce(x)
        work = dist.all_reduce(x, async_op=True)
        work.wait()
        assert work.is_completed()
        dist.barrier(device_ids=[0])
        assert dist.get_backend() == "nccl"
    (site,) = audit.report.sites
    assert (site.op, site.kind) == ("c10d::barrier", "explicit_synchronize")


def test_gloo_on_device_tensors_goes_through_the_host() -> None:
    with world_of_one("values", "gloo") as audit:
        audit.record(True)
        dist.all_reduce(torch.ones(4, device="cuda"))
        dist.all_reduce(torch.ones(4))
    (site,) = audit.report.sites
    assert (site.op, site.kind) == ("c10d::allreduce_", "d2h_copy")
    assert NCCL_NOTE not in audit.report.notes


def test_objects_travel_as_device_tensors_under_nccl() -> None:
    with world_of_one("values") as audit:
        audit.record(True)
        objects: list[Any] = [None]
        dist.all_gather_object(objects, {"loss": 1.0})
        assert objects == [{"loss": 1.0}]
    assert audit.report.syncs_per_step > 0, "sizes and bytes are read back"


_TWO_RANKS = """
import sys
import torch, torch.distributed as dist
from torch.distributed import ReduceOp
from harness.emulator.device import EmulatedDevice

rank, store, mode = int(sys.argv[1]), sys.argv[2], sys.argv[3]
on = dict(device="cuda")
with EmulatedDevice(shapes_only=mode == "shapes") as device:
    dist.init_process_group("nccl", init_method=f"file://{store}", rank=rank, world_size=2)
    mine = torch.arange(4.0, **on) + 10 * rank

    def check(tensor, expected):
        assert tensor.tolist() == expected, (tensor.tolist(), expected)

    for op, expected in (
        (ReduceOp.SUM, [10.0, 12.0, 14.0, 16.0]), (ReduceOp.AVG, [5.0, 6.0, 7.0, 8.0]),
        (ReduceOp.MAX, [10.0, 11.0, 12.0, 13.0]), (ReduceOp.PRODUCT, [0.0, 11.0, 24.0, 39.0]),
    ):
        x = mine.clone()
        dist.all_reduce(x, op)
        check(x, expected)
    x = mine.to(torch.bfloat16)
    dist.broadcast(x, 1)
    check(x, [10.0, 11.0, 12.0, 13.0])
    parts = [torch.empty(4, **on) for _ in range(2)]
    dist.all_gather(parts, mine)
    check(parts[1], [10.0, 11.0, 12.0, 13.0])
    flat = torch.empty(8, **on)
    dist.all_gather_into_tensor(flat, mine)
    check(flat, [0.0, 1.0, 2.0, 3.0, 10.0, 11.0, 12.0, 13.0])
    half = torch.empty(2, **on)
    dist.reduce_scatter_tensor(half, mine)
    check(half, [10.0, 12.0] if rank == 0 else [14.0, 16.0])
    dist.reduce_scatter(half, [mine[:2].clone(), mine[2:].clone()])
    check(half, [10.0, 12.0] if rank == 0 else [14.0, 16.0])
    out = torch.empty(4, **on)
    dist.all_to_all_single(out, mine)
    check(out, [0.0, 1.0, 10.0, 11.0] if rank == 0 else [2.0, 3.0, 12.0, 13.0])
    sent, got = ([1, 3], [1, 2]) if rank == 0 else ([2, 2], [3, 2])
    out = torch.empty(sum(got), **on)
    dist.all_to_all_single(out, mine, got, sent)
    check(out, [0.0, 10.0, 11.0] if rank == 0 else [1.0, 2.0, 3.0, 12.0, 13.0])
    if rank == 0:
        dist.send(mine, 1)
    else:
        x = torch.empty(4, **on)
        dist.recv(x, 0)
        check(x, [0.0, 1.0, 2.0, 3.0])
    gathered = [torch.empty(4, **on) for _ in range(2)] if rank == 0 else None
    dist.gather(mine, gathered)
    if rank == 0:
        check(gathered[1], [10.0, 11.0, 12.0, 13.0])
    x = torch.empty(4, **on)
    dist.scatter(x, [mine, mine + 1] if rank == 0 else None)
    check(x, [0.0, 1.0, 2.0, 3.0] if rank == 0 else [1.0, 2.0, 3.0, 4.0])
    other = torch.empty(4, **on)
    ops = [dist.P2POp(dist.isend, mine, 1 - rank), dist.P2POp(dist.irecv, other, 1 - rank)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    check(other, [10.0, 11.0, 12.0, 13.0] if rank == 0 else [0.0, 1.0, 2.0, 3.0])
    torch.manual_seed(rank)
    net = torch.nn.Linear(4, 2).cuda()
    net = torch.nn.parallel.DistributedDataParallel(net, device_ids=[0])
    net(torch.randn(3, 4, **on)).sum().backward()
    weights = [torch.empty(2, 4, **on) for _ in range(2)]
    for tensor in (net.module.weight.detach(), net.module.weight.grad):
        dist.all_gather(weights, tensor)
        assert torch.equal(*weights)
    large = torch.randn(512, 512, **on)
    dist.all_reduce(large)
    dist.barrier(device_ids=[0])
print("done")
"""


@MODES
def test_two_ranks_exchange_what_they_hold(mode: str, tmp_path: Path) -> None:
    script = tmp_path / "ranks.py"
    script.write_text(_TWO_RANKS, encoding="utf-8")
    ranks = [
        subprocess.Popen(
            [sys.executable, str(script), str(rank), str(tmp_path / "store"), mode],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    for rank in ranks:
        try:
            out, err = rank.communicate(timeout=120)
        finally:
            rank.kill()
        assert out == "done\n", err
