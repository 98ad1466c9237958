"""Worlds whose ranks are those of a process group of torch.distributed."""

from __future__ import annotations

from typing import Any, Callable

import torch
import torch.distributed as dist

from .._errors import InvalidArgument
from .._world import World


def world_of_group(group: Any = None, *, device: Any = None, deadline: float | None = None) -> World:
    """A world of the processes of a group; None: the default group. Collective over the group.

    The ranks are those of the group, and no others take part. It carries what they say to each other while the world is
    made, and is not used again.

    device    where the ranks' tensors lie; None: this process's current GPU where the group has no backend for CPUs,
              else the CPU
    deadline  seconds for all ranks to come; None: 30. The group's own timeout counts, too

    Raises as ferry.World.from_all_gather.
    """
    if not dist.is_available() or not dist.is_initialized():
        raise InvalidArgument("there is no process group; call torch.distributed.init_process_group first")
    if group is not None and not isinstance(group, dist.ProcessGroup):  # new_group gives others an int
        raise InvalidArgument("this process is no rank of the group; only its ranks make the world")
    return World.from_all_gather(dist.get_rank(group), dist.get_world_size(group), all_gather_of(group),
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


def all_gather_of(group: Any) -> Callable[[bytes], list[bytes]]:
    """all_gather(mine): the bytes of all ranks of the group, as many of each, in rank order."""
    device, size = carrier_of(group), dist.get_world_size(group)

    def all_gather(mine: bytes) -> list[bytes]:
        own = torch.frombuffer(bytearray(mine), dtype=torch.uint8).to(device)
        everyone = [torch.empty_like(own) for _ in range(size)]
        dist.all_gather(everyone, own, group=group)
        return [one.cpu().numpy().tobytes() for one in everyone]

    return all_gather
