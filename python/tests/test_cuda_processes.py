"""Ranks that are processes with a GPU each."""

import pytest

import devices
import ferry
from oracle import make_layer
from rank_processes import free_port, run
from test_processes import require_next_try_after_ctrl_c

LAYER = make_layer(2, 8, 2, 256, [4, 6])


def test_devices_that_are_none():
    for device in ("gpu", "cuda:x", "cuda:", "cpu:0"):
        with pytest.raises(ValueError, match=f"'{device}'; it must be cpu, cuda"):
            ferry.World.connect("127.0.0.1:1", 0, 1, device=device)
    if not ferry.has_cuda():
        with pytest.raises(ferry.Unsupported, match="FERRY_CUDA=ON"):
            ferry.World.connect("127.0.0.1:1", 0, 1, device="cuda:0")


def test_whether_gpus_are_shared_is_true_or_false():
    with pytest.raises(TypeError, match="share_gpus is 1; it must be True or False"):
        ferry.World.connect("127.0.0.1:1", 0, 1, share_gpus=1)


def rounds(rank, size, port, device):
    """Two rounds; the kind of world, where its arrays lie, and whether the sums are right."""
    import torch
    torch.cuda.set_device(rank)
    with ferry.World.connect(f"127.0.0.1:{port}", rank, size, device=device or f"cuda:{rank}") as world:
        return world.kind, world.device, sums_are_right(world)


def rounds_on_one_gpu(rank, size, port):
    with ferry.World.connect(f"127.0.0.1:{port}", rank, size, device="cuda:0", share_gpus=True) as world:
        return world.device, sums_are_right(world)


def sums_are_right(world):
    import numpy as np
    rank, worst = world.rank, 0.0
    tokens, ids, weights = (devices.on_gpu(of[rank], world.device) for of in (LAYER.tokens, LAYER.ids, LAYER.weights))
    with ferry.Exchange(world, experts=8, top_k=2, max_tokens=6, hidden=256) as exchange:
        for _ in range(2):
            arrivals = exchange.dispatch(tokens, ids, weights)
            values = arrivals.values()
            for group, expert in enumerate(LAYER.experts_of(rank)):
                values[arrivals.rows_of(group)] *= expert + 1
            sums = devices.on_host(exchange.combine(devices.on_gpu(values, world.device)))
            want = LAYER.sums(rank, lambda expert: expert + 1)
            worst = max(worst, np.abs(sums - want).max() / np.abs(want).max())
        world.barrier()
    return bool(worst < 0.02)


@pytest.mark.parametrize("device", [None, "cuda"])
def test_a_process_for_each_gpu(device):
    why_not = devices.why_no_gpus() or (None if ferry.cuda_devices() > 1 else "takes two GPUs")
    if why_not:
        pytest.skip(why_not)
    assert run(2, rounds, free_port(), device) == [("cuda_processes", f"cuda:{rank}", True) for rank in range(2)]


def test_processes_that_share_a_gpu():
    if why_not := devices.why_no_gpus():
        pytest.skip(why_not)
    assert run(2, rounds_on_one_gpu, free_port()) == [("cuda:0", True)] * 2


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("seconds", [0.1, 2])
def test_after_ctrl_c_while_a_world_of_gpus_is_made_the_next_try_succeeds(seconds, rank):
    if why_not := devices.why_no_gpus():
        pytest.skip(why_not)
    require_next_try_after_ctrl_c(rounds_on_one_gpu, ("cuda:0", True), rank, seconds)
