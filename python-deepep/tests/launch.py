"""Runs a function on ranks that share a group: threads of this process, on CPUs or GPUs, or processes with a group of gloo."""

from __future__ import annotations

import os
import random
import socket
import tempfile
from typing import Any, Callable

import torch
import torch.distributed as dist
import torch.distributed.nn  # before there is a group, which its default arguments would keep, and its threads

import ferry

DEADLINE = "60"


def on_threads(ranks: int, body: Callable[..., Any], *args: Any) -> list[Any]:
    """body(group, rank, ranks, *args) on each rank. The group is a ferry.World, which Buffer takes, too."""
    os.environ["FERRY_DEEPEP_DEADLINE"] = DEADLINE
    return ferry.run_ranks(ranks, lambda world: body(world, world.rank, ranks, *args))


def free_port() -> str:
    """A port that nothing listens at, below those that connections get by themselves: of these, one may be taken before
    the test listens there."""
    for tries_left in reversed(range(100)):
        port = random.SystemRandom().randrange(12_000, 32_000)  # tests seed the other generator
        with socket.socket() as found:
            try:
                found.bind(("127.0.0.1", port))
                break
            except OSError:
                if tries_left == 0:
                    raise
    return str(port)


def why_no_gpus() -> str | None:
    """Why nothing can run on GPUs here."""
    if not ferry.has_cuda():
        return "this build has no GPU ranks"
    return None if ferry.cuda_devices() else "no GPU was found"


def on_gpus(body: Callable[..., Any], *args: Any) -> None:
    """on_threads with two ranks, which share a GPU where there is one, each on a stream of its own."""
    os.environ["FERRY_DEEPEP_DEADLINE"] = DEADLINE
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")  # so that their streams stay apart
    worlds = ferry.cuda_worlds(2, devices=[rank % ferry.cuda_devices() for rank in range(2)])

    def on_gpu(world: Any) -> None:
        with torch.cuda.device(world.device), torch.cuda.stream(torch.cuda.Stream()):
            # torch keeps this memory: what it asked CUDA for later could wait for the kernels of other ranks.
            kept = [torch.empty(1 << size, dtype=torch.uint8, device=world.device) for size in [20] * 32 + [26]]
            del kept
            torch.cuda.current_stream().synchronize()
            world.barrier()
            body(world, world.rank, len(worlds), *args)
            torch.cuda.current_stream().synchronize()

    try:
        ferry.run_worlds(worlds, on_gpu)
    finally:
        for world in worlds:
            world.close()


def on_processes(ranks: int, body: Callable[..., Any], *args: Any) -> None:
    """The same with a process for each rank. What a body returns is lost."""
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(_process, (ranks, f"file://{folder}/store", body, args), nprocs=ranks)


def _process(rank: int, ranks: int, store: str, body: Callable[..., Any], args: tuple[Any, ...]) -> None:
    os.environ.update({"FERRY_DEEPEP_DEADLINE": DEADLINE, "FERRY_DEEPEP_DEVICE": "cpu"})
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=ranks)
    try:
        body(dist.group.WORLD, rank, ranks, *args)
    finally:
        dist.destroy_process_group()
