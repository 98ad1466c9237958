"""Processes that torchrun starts, one for each GPU, with a group of NCCL: the example that trains, and groups that differ."""

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
