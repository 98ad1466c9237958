"""The processes of a test or a benchmark, a GPU each where there are GPUs, and what they know of their machine."""

from __future__ import annotations

import functools
import os
import random
import re
import subprocess

import torch
import torch.distributed as dist

from .._arguments import refused
from .._environment import whole_number
from .._ranks import chosen_device, get_logical_domain_size, get_physical_domain_size, has_gpu_tensors
from .._streams import torch_fills_memory
from . import check_nvlink_connections

__all__ = ["check_fast_rdma_atomic_support", "check_nvlink_connections", "check_torch_deterministic", "dist_print",
           "get_global_seed", "get_local_seed", "get_logical_domain_size", "get_nvlink_gbs", "get_physical_domain_size",
           "get_rdma_gbs", "init_dist", "init_seed"]

_local_rank = 0
_global_seed = _local_seed = 0

_WHY = "deep_ep on Ferry has ranks of one host only"
get_rdma_gbs = refused("deep_ep.utils.envs.get_rdma_gbs", _WHY)
check_fast_rdma_atomic_support = refused("deep_ep.utils.envs.check_fast_rdma_atomic_support", _WHY)


def init_dist(local_rank: int, num_local_ranks: int, seed: int = 0) -> tuple[int, int, dist.ProcessGroup]:
    """Makes this process a rank: (rank, ranks, a group of them all). Tensors are bf16 on its GPU from now on.

    MASTER_ADDR, MASTER_PORT, WORLD_SIZE (hosts) and RANK (this host) of the environment say where the others are; they
    are 127.0.0.1, 8361, 1 and 0 if they are not set. Without GPUs, or with FERRY_DEEPEP_DEVICE=cpu, tensors are on the
    CPU.
    """
    global _local_rank
    _local_rank = local_rank
    address = f"{os.environ.get('MASTER_ADDR', '127.0.0.1')}:{os.environ.get('MASTER_PORT', '8361')}"
    ranks = whole_number("WORLD_SIZE", 1, least=1) * num_local_ranks
    rank = whole_number("RANK", 0) * num_local_ranks + local_rank
    is_gpu = has_gpu_tensors()
    if is_gpu:
        torch.cuda.set_device(local_rank)
    device = torch.device(chosen_device())
    dist.init_process_group("nccl" if is_gpu else "gloo", init_method=f"tcp://{address}", rank=rank, world_size=ranks,
                            device_id=device if is_gpu else None)
    torch.set_default_device(device)
    torch.set_default_dtype(torch.bfloat16)
    init_seed(seed)
    group = dist.new_group(list(range(ranks)))
    assert isinstance(group, dist.ProcessGroup)
    return rank, ranks, group


def init_seed(global_seed: int) -> None:
    """Random numbers of this rank begin anew, with others for each rank."""
    global _global_seed, _local_seed
    _global_seed = global_seed
    _local_seed = global_seed + (dist.get_rank() if dist.is_initialized() else 0)
    random.seed(_local_seed)
    torch.manual_seed(_local_seed)


def get_local_seed() -> int:
    return _local_seed


def get_global_seed() -> int:
    return _global_seed


def dist_print(s: str = "", once_in_node: bool = False) -> None:
    """Prints on every rank, or on the first of a host, and then waits for all ranks."""
    if _local_rank == 0 or not once_in_node:
        print(s, flush=True)
    dist.barrier()


def check_torch_deterministic() -> None:
    """Raises AssertionError where torch fills new memory, by kernels of its own. Buffers wait for
    them, so here nothing depends on it."""
    if torch_fills_memory():
        raise AssertionError("torch fills new memory; set torch.utils.deterministic.fill_uninitialized_memory = False")


@functools.lru_cache
def get_nvlink_gbs(factor: float = 0.9) -> float:
    """GB/s of all links of the first GPU, of which so much can be had; 0 if nvidia-smi does not say it."""
    try:
        said = subprocess.run(["nvidia-smi", "nvlink", "--status", "-i", "0"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return 0.0
    return factor * sum(float(rate) for rate in re.findall(r"Link \d+: ([\d.]+) GB/s", said.stdout))
