"""Processes with a GPU each and a group of NCCL: the example under torchrun, groups that differ, rounds beside NCCL's own."""

import os
import pathlib
import subprocess
import sys
import time

import devices
import pytest
import rank_processes
import torch
import torch.distributed as dist

import ferry
import ferry.torch

WHY_NOT = devices.why_no_gpus() or (None if ferry.cuda_devices() > 1 else "no GPU was found for a second rank")
pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or "")
EXAMPLE = pathlib.Path(__file__).parents[3] / "examples" / "train_moe.py"
DEADLINE = 3


@pytest.mark.parametrize("name", ["bf16", "fp8_block128"])
def test_the_example_trains(name):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", EXAMPLE,
               "--format", name, "--steps", "20"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "apart" in done.stdout.splitlines()[-1]


def in_different_groups(rank, size, file):
    """What each rank sees that asks for an exchange of a group in which the others do not ask; and one that all ask for."""
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method=f"file://{file}", rank=rank, world_size=size)
    groups = [dist.new_group([0, 1]), dist.new_group([0, 1])]
    shape = dict(experts=4, top_k=2, max_tokens=4, hidden=64)
    began = time.monotonic()
    with pytest.raises(ferry.PeerMissing) as raised:
        ferry.torch.Exchange.from_group(groups[rank], set_up_deadline=DEADLINE, **shape)
    found = str(raised.value), time.monotonic() - began
    dist.barrier()
    with ferry.torch.Exchange.from_group(groups[0], **shape) as exchange:
        assert exchange.ranks == size
    dist.barrier()
    dist.destroy_process_group()
    return found


def test_different_groups_are_missed_at_the_deadline(tmp_path):
    for text, seconds in rank_processes.run(2, in_different_groups, os.fspath(tmp_path / "meeting")):
        assert f"the deadline is {DEADLINE} s" in text and "the same group" in text
        assert seconds >= DEADLINE


def beside_nccl(rank, size, file):
    """Rounds on one stream, sums of NCCL on another, enqueued in opposite orders by the two ranks. The sums of both."""
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method=f"file://{file}", rank=rank, world_size=size)
    device, side = torch.device("cuda", rank), torch.cuda.Stream()
    averaged = torch.ones(1 << 22, device=device)
    tokens = torch.ones((64, 1024), dtype=torch.bfloat16, device=device)
    ids = torch.arange(128, dtype=torch.int32, device=device).reshape(64, 2) % 8
    weights = torch.tensor([0.75, 0.25], device=device).repeat(64, 1)
    with ferry.torch.Exchange.from_group(experts=8, top_k=2, max_tokens=64, hidden=1024, reserve_sms=32,
                                         deadline=60.0) as exchange:
        outputs, sums = exchange.allocate_outputs(), torch.empty_like(tokens)
        rows = torch.ones((exchange.most_rows(), 1024), dtype=torch.bfloat16, device=device)

        def round_of_ferry():
            exchange.dispatch(tokens, ids, weights, outputs=outputs)
            exchange.combine(rows, out=sums)

        def sum_of_nccl():
            with torch.cuda.stream(side):
                dist.all_reduce(averaged, op=dist.ReduceOp.AVG)

        sum_of_nccl()  # NCCL sets itself up, which waits for running kernels
        torch.cuda.synchronize()
        dist.barrier()
        calls = (round_of_ferry, sum_of_nccl) if rank == 0 else (sum_of_nccl, round_of_ferry)
        for _ in range(300):
            for call in calls:
                call()
        torch.cuda.synchronize()
        exchange.check()
        found = bool((sums == 1).all()), bool((averaged == 1).all())
    dist.barrier()
    dist.destroy_process_group()
    return found


def test_rounds_beside_nccl(tmp_path):
    assert rank_processes.run(2, beside_nccl, os.fspath(tmp_path / "meeting")) == [(True, True)] * 2
