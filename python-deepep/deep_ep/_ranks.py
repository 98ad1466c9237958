"""The ranks of a buffer: a world of Ferry made from whatever the caller has, and what the environment says."""

from __future__ import annotations

import os
from typing import Any

import torch

import ferry
import ferry.torch

from . import _environment
from ._arguments import told

_DEADLINE = 100.0  # seconds; ranks may compile kernels of their own between two calls
#: On GPUs: multiprocessors that are left to kernels of others that wait for peers, such as NCCL's.
RESERVED_SMS = 32


class Ranks:
    """world, rank, size; `device` is where tensors lie."""

    def __init__(self, group: Any, comm: Any) -> None:
        self.deadline = deadline_or(_DEADLINE)
        self._owns = not isinstance(group, ferry.World)
        self.world: ferry.World = _world_of(group, comm, self.deadline) if self._owns else group
        self.rank, self.size = self.world.rank, self.world.size
        self.device = torch.device(self.world.device)
        self.is_gpu = self.device.type == "cuda"
        self.capabilities = self.world.capabilities()
        self.least_tokens = _environment.whole_number("FERRY_DEEPEP_MAX_TOKENS", 0)
        self.short_handles = asks_for_short_handles()
        self.is_open = True
        self.mask: set[int] = set()  # ranks that the low-latency mode leaves out

    def most(self, number: int) -> int:
        """Collective: the largest number that a rank gives."""
        everyone = self.world.all_gather(number.to_bytes(8, "little"), deadline=self.deadline)
        return max(int.from_bytes(one, "little") for one in everyone)

    def require_open(self) -> None:
        """A world of the caller outlives its buffers, so it would serve calls of a destroyed one."""
        if not self.is_open:
            raise ferry.Closed("the buffer is closed: destroy() was called; make another one")

    def close(self) -> None:
        self.is_open = False
        if self._owns:
            self.world.close()


def _world_of(group: Any, comm: Any, deadline: float) -> ferry.World:
    shared = _environment.asks_for("FERRY_DEEPEP_SHARE_GPUS")
    if group is not None:
        return ferry.torch.world_of_group(group, device=chosen_device(), share_gpus=shared, deadline=deadline)
    if comm is None:
        raise ValueError("neither group nor comm was given; one of them says who the ranks are")
    if not all(hasattr(comm, name) for name in ("Get_rank", "Get_size", "allgather")):
        raise TypeError(f"comm is {told(comm)}; it must be a communicator of mpi4py, with Get_rank, Get_size and allgather")
    return ferry.World.from_all_gather(comm.Get_rank(), comm.Get_size(), comm.allgather, device=chosen_device(),
                                       share_gpus=shared, deadline=deadline)


def deadline_or(seconds: float) -> float:
    """How long calls wait: what the environment says, or so many seconds."""
    return _environment.seconds("FERRY_DEEPEP_DEADLINE", seconds)


def asks_for_short_handles() -> bool:
    """Whether a handle has the bytes of what came, where the host knows that."""
    return _environment.asks_for("FERRY_DEEPEP_SHORT_HANDLES")


def has_gpu_tensors() -> bool:
    """Whether tensors will lie on GPUs. A group does not say it: engines give one of CPUs for tensors on GPUs."""
    chosen = os.environ.get("FERRY_DEEPEP_DEVICE")
    if chosen not in (None, "cpu", "cuda"):
        raise ValueError(f"FERRY_DEEPEP_DEVICE is {chosen!r}; it must be cpu or cuda")
    return chosen == "cuda" or chosen is None and torch.cuda.is_available() and ferry.has_cuda()


def chosen_device() -> str:
    """Where tensors will lie."""
    return f"cuda:{torch.cuda.current_device()}" if has_gpu_tensors() else "cpu"


def get_physical_domain_size(group: Any) -> tuple[int, int]:
    """(hosts, ranks of a host)"""
    return 1, int(group.size if isinstance(group, ferry.World) else group.size())


def get_logical_domain_size(group: Any, allow_hybrid_mode: bool = True) -> tuple[int, int]:
    return get_physical_domain_size(group)
