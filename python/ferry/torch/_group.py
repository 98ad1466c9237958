"""Worlds whose ranks are those of a process group of torch.distributed."""

from __future__ import annotations

import datetime
from typing import Any, Callable, Sequence

import torch
import torch.distributed as dist

from .._arguments import seconds
from .._errors import InvalidArgument, PeerMissing
from .._world import World

DEADLINE = 30.0  # seconds, as of all worlds of processes


def world_of_group(group: Any = None, *, device: Any = None, deadline: float | None = None) -> World:
    """A world of the processes of a group; None: the default group. Collective over the group.

    The ranks are those of the group, and no others take part. It carries what they say to each other while the world is
    made, and is not used again.

    device    where the ranks' tensors lie; None: this process's current GPU where the group has no backend for CPUs,
              else the CPU
    deadline  seconds for all ranks to come; None: 30

    Raises as ferry.World.from_all_gather. Where processes give different groups, each gets PeerMissing at its deadline.
    torch does not use a group again whose ranks have missed each other: make another one with new_group.
    """
    if not dist.is_available() or not dist.is_initialized():
        raise InvalidArgument("there is no process group; call torch.distributed.init_process_group first")
    if group is not None and not isinstance(group, dist.ProcessGroup):  # new_group gives others an int
        raise InvalidArgument("this process is no rank of the group; only its ranks make the world")
    return World.from_all_gather(dist.get_rank(group), dist.get_world_size(group), all_gather_of(group, deadline),
                                 device=str(device_of(group, device)), deadline=deadline)


def device_of(group: Any, device: Any) -> torch.device:
    """With an index where it is a GPU."""
    where = carrier_of(group) if device is None else torch.device(device)
    if where.type == "cuda" and where.index is None:
        where = torch.device("cuda", torch.cuda.current_device())
    return where


def carrier_of(group: Any) -> torch.device:
    """Where tensors must lie for the group to carry them."""
    kinds = [part.partition(":")[0] for part in dist.get_backend_config(group).split(",")]
    return torch.device("cpu") if "cpu" in kinds else torch.device("cuda", torch.cuda.current_device())


def all_gather_of(group: Any, deadline: float | None) -> Callable[[bytes], list[bytes]]:
    """all_gather(mine): the bytes of all ranks of the group, as many of each, in rank order."""
    device, size, limit = carrier_of(group), dist.get_world_size(group), seconds("deadline", deadline) or DEADLINE

    def all_gather(mine: bytes) -> list[bytes]:
        own = torch.frombuffer(bytearray(mine), dtype=torch.uint8).to(device)
        everyone = [torch.empty_like(own) for _ in range(size)]
        try:
            gather(group, everyone, own, datetime.timedelta(seconds=limit))
        except RuntimeError as error:
            raise missing_from(group, limit, error) from error
        return [one.cpu().numpy().tobytes() for one in everyone]

    return all_gather


def gather(group: Any, everyone: list[torch.Tensor], own: torch.Tensor, limit: datetime.timedelta) -> None:
    """dist.all_gather with a deadline. The wait alone would leave gloo's thread behind until the group's timeout."""
    from torch._C._distributed_c10d import AllgatherOptions  # a torch without torch.distributed has none

    options, group = AllgatherOptions(), dist.group.WORLD if group is None else group
    options.timeout = limit
    group.allgather([everyone], [own], options).wait(limit)


def missing_from(group: Any, limit: float, error: RuntimeError) -> PeerMissing:
    """Who waited in vain. Which rank did not come, torch does not say."""
    rank, ranks = dist.get_rank(group), dist.get_process_group_ranks(group)
    missing = PeerMissing(f"rank {rank} waited for the {len(ranks)} ranks of its process group{named(ranks)} to make a "
                          f"world, and not all came; the deadline is {limit:g} s. All of them must call this, each with "
                          f"the same group. To try again, make another group with new_group. torch says: {error}")
    missing.my_rank = missing.reported_by = rank
    missing.operation = "set_up"
    return missing


def named(ranks: Sequence[int]) -> str:
    """Which processes they are, where that is more than a count says."""
    return "" if list(ranks) == list(range(dist.get_world_size())) else f", processes {', '.join(map(str, ranks))},"
