"""Ranks over NVSHMEM, processes with a GPU each."""

import pathlib

import pytest

import devices
import ferry
from rank_processes import free_port, run
from test_cuda_processes import sums_are_right

HERE = dict(rank=0, size=1, address="127.0.0.1:1")


def built():
    return pathlib.Path(ferry._transports._library("nvshmem")).exists()


def test_what_is_refused():
    with pytest.raises(ValueError, match="'cpu'; it must be cuda or a GPU"):
        ferry.World.from_nvshmem(**HERE, device="cpu")
    with pytest.raises(ValueError, match="heap_bytes is -1"):
        ferry.World.from_nvshmem(**HERE, heap_bytes=-1)
    with pytest.raises(ValueError, match="nodes is 4294967296"):
        ferry.World.from_nvshmem(**HERE, nodes=2**32)
    if ferry.has_cuda() and built() and ferry.cuda_devices() > 0:
        return
    words = "FERRY_CUDA=ON" if not ferry.has_cuda() else "no GPU was found" if built() else "NVSHMEM_HOME"
    with pytest.raises(ferry.Unsupported, match=words):
        ferry.World.from_nvshmem(**HERE)


def rounds(rank, size, port, nodes):
    import torch
    torch.cuda.set_device(rank)
    with ferry.World.from_nvshmem(rank=rank, size=size, address=f"127.0.0.1:{port}", local_rank=rank, nodes=nodes,
                                  heap_bytes=64 << 20) as world:
        return world.kind, world.device, sums_are_right(world)


@pytest.mark.parametrize("nodes", [1, 2])
def test_rounds_on_cuda(nodes):
    no_nvshmem = None if built() else "this build has no NVSHMEM"
    too_few = None if ferry.cuda_devices() > 1 else "no GPU was found for a second rank"
    why_not = devices.why_no_gpus() or no_nvshmem or too_few
    if why_not:
        pytest.skip(why_not)
    assert run(2, rounds, free_port(), nodes) == [("nvshmem", f"cuda:{rank}", True) for rank in range(2)]
