"""Worlds whose ranks are those of a process group of torch.distributed."""

from __future__ import annotations

import time
from typing import Any, Callable, Iterable

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from .._arguments import require, seconds
from .._errors import InvalidArgument, PeerMissing
from .._world import World

DEADLINE = 30.0  # seconds, as of all worlds of processes
LOOK_EVERY = 0.01  # seconds
_NO_RANK = dist.GroupMember.NON_GROUP_MEMBER if dist.is_available() else None


def world_of_group(group: Any = None, *, device: Any = None, share_gpus: bool = False,
                   deadline: float | None = None) -> World:
    """A world of the processes of a group; None: the default group. Collective over the group.

    The ranks are those of the group, and no others take part. What they say to each other while the world is made goes
    over the group's store, so that a wait has a deadline: the first collective of NCCL has none. The group itself
    carries nothing.

    device      where the ranks' tensors lie; None: this process's current GPU where the group has no backend for CPUs,
                else the CPU
    share_gpus  as for ferry.World.from_env
    deadline    seconds for all ranks to come; None: 30

    Raises as ferry.World.from_all_gather. Where processes give different groups, each gets PeerMissing at its deadline,
    with the rank that did not come. They may call again, with the same group.
    """
    if not dist.is_available() or not dist.is_initialized():
        raise InvalidArgument("there is no process group; call torch.distributed.init_process_group first")
    if type(group) is type(_NO_RANK) and group == _NO_RANK:  # what new_group gives others
        raise InvalidArgument("this process is no rank of the group; only its ranks make the world")
    require("group", group, group is None or isinstance(group, dist.ProcessGroup),
            "a process group of torch.distributed, or None: the default one")
    return World.from_all_gather(dist.get_rank(group), dist.get_world_size(group), all_gather_of(group, deadline),
                                 device=str(device_of(group, device)), share_gpus=share_gpus, deadline=deadline)


def device_of(group: Any, device: Any) -> torch.device:
    """With an index where it is a GPU."""
    where = carrier_of(group) if device is None else device_named(device)
    if where.type == "cuda" and where.index is None:
        where = torch.device("cuda", torch.cuda.current_device())
    return where


def device_named(device: Any) -> torch.device:
    try:
        return torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise InvalidArgument(f"device is {device!r}; it must be cpu, cuda or a GPU, such as cuda:1") from error


def carrier_of(group: Any) -> torch.device:
    """Where tensors must lie for the group to carry them."""
    kinds = [part.partition(":")[0] for part in dist.get_backend_config(group).split(",")]
    return torch.device("cpu") if "cpu" in kinds else torch.device("cuda", torch.cuda.current_device())


def all_gather_of(group: Any, deadline: float | None) -> Callable[[bytes], list[bytes]]:
    """all_gather(mine): the bytes of all ranks of the group, in rank order."""
    store, size, rank = store_of(group), dist.get_world_size(group), dist.get_rank(group)
    limit = seconds("deadline", deadline) or DEADLINE

    found: dict[int, bytes] = {}

    def gather(mine: bytes) -> None:
        # Every rank counts its calls, those before a deadline passed aside: the same number is the same call.
        number = store.add(f"ferry/calls/{rank}", 1)
        keys = [f"ferry/{number}/{other}" for other in range(size)]
        store.set(keys[rank], mine)
        end = time.monotonic() + limit
        while True:
            for other in range(size):
                # A rank that gave up leaves nothing in its key. The key stays: get() would wait for one that is gone.
                if other not in found and store.check([keys[other]]) and (given := bytes(store.get(keys[other]))):
                    found[other] = given
            late = [other for other in range(size) if other not in found]
            if not late:
                break
            if time.monotonic() > end:
                store.set(keys[rank], b"")
                store.add(f"ferry/calls/{rank}", -1)
                raise missing_from(group, late, f"the deadline is {limit:g} s. All of them must call this, each with the "
                                                "same group")
            time.sleep(LOOK_EVERY)
        store.delete_key(f"ferry/{number - 1}/{rank}")  # all have read it: each has come to this call

    def all_gather(mine: bytes) -> list[bytes]:
        found.clear()
        found[rank] = mine
        try:
            gather(mine)
        except dist.DistError as error:  # the process that holds the store has ended
            if len(found) < size:
                late = [other for other in range(size) if other not in found]
                raise missing_from(group, late, "the group's store is gone, with the process that held it "
                                                f"({str(error).splitlines()[0]})") from error
        return [found[other] for other in range(size)]

    return all_gather


def store_of(group: Any) -> Any:
    """Where the processes of a group meet: of this group alone."""
    group = dist.group.WORLD if group is None else group
    try:
        if hasattr(group, "get_group_store"):  # torch 2.7
            return group.get_group_store()
        return distributed_c10d._get_process_group_store(group)
    except (KeyError, RuntimeError) as error:
        raise InvalidArgument("the process group has no store, as one of MPI; make the world with "
                              "ferry.World.from_all_gather") from error


def missing_from(group: Any, late: list[int], why: str) -> PeerMissing:
    """Who waited in vain, and for whom: ranks of the group, and their processes where those are others."""
    rank, processes = dist.get_rank(group), dist.get_process_group_ranks(group)
    several = len(late) > 1
    where = ""
    if processes != list(range(dist.get_world_size())):
        where = f" (process{'es' * several} {named(processes[one] for one in late)})"
    missing = PeerMissing(f"rank {rank}: rank{'s' * several} {named(late)}{where} of the {len(processes)} of its process "
                          f"group did not come to make a world; {why}")
    missing.my_rank = missing.reported_by = rank
    missing.rank = late[0]
    missing.operation = "set_up"
    return missing


def named(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))
