"""Worlds whose ranks are those of a process group of torch.distributed."""

from __future__ import annotations

import contextlib
import time
from typing import Any, Callable, Iterable

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from .._arguments import require, seconds
from .._errors import InvalidArgument, PeerMissing, Unsupported
from .._world import World

DEADLINE = 30.0  # seconds, as of all worlds of processes
MOST_SECONDS = 24 * 3600
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
    with the rank that did not come. They may call again, with the same group, at any time.
    """
    if not dist.is_available() or not dist.is_initialized():
        raise InvalidArgument("there is no process group; call torch.distributed.init_process_group first")
    if type(group) is type(_NO_RANK) and group == _NO_RANK:  # what new_group gives others
        raise InvalidArgument("this process is no rank of the group; only its ranks make the world")
    require("group", group, group is None or isinstance(group, dist.ProcessGroup),
            "a process group of torch.distributed, or None: the default one")
    return World.from_all_gather(dist.get_rank(group), dist.get_world_size(group), Gathering(group, deadline),
                                 device=str(device_of(group, device)), share_gpus=share_gpus, deadline=deadline)


def device_of(group: Any, device: Any) -> torch.device:
    """With an index where it is a GPU."""
    where = carrier_of(group) if device is None else device_named(device)
    if where.type == "cuda" and where.index is None:
        where = current_gpu()
    return where


def device_named(device: Any) -> torch.device:
    try:
        return torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise InvalidArgument(f"device is {device!r}; it must be cpu, cuda or a GPU, such as cuda:1") from error


def carrier_of(group: Any) -> torch.device:
    """Where tensors must lie for the group to carry them."""
    kinds = [part.partition(":")[0] for part in dist.get_backend_config(group).split(",")]
    return torch.device("cpu") if "cpu" in kinds else current_gpu()


def current_gpu() -> torch.device:
    if not torch.cuda.is_available():
        raise Unsupported("torch finds no GPU, or no driver for it; give device=\"cpu\", and a group with a backend for "
                          "CPUs, such as gloo")
    return torch.device("cuda", torch.cuda.current_device())


def attempt_of(number: int) -> str:
    return f"ferry/{number}/attempt"


class Attempts:
    """The attempts of one call, of which all ranks agree on one, or on none: one word of the store says on which.

    A rank that gives up ends the attempt for all, unless it was agreed on before. So nobody goes on with what was left
    by a rank that is gone. The word stays until all ranks have agreed on one of the next call.
    """

    def __init__(self, store: Any, number: int) -> None:
        self._store, self._key = store, attempt_of(number)
        self._word = ""  # that of attempt 0, as long as nobody has written one
        self.mine = -1  # the one that this rank has come to
        self.look()

    @property
    def newest(self) -> int:
        return int(self._word[1:] or 0)

    @property
    def is_agreed(self) -> bool:
        return self._word.startswith("=")

    def look(self) -> None:
        if self._store.check([self._key]):
            self._word = bytes(self._store.get(self._key)).decode()

    def agree(self) -> None:
        self._replace(f"={self.newest}")

    def end(self) -> None:
        """Ends the attempt that this rank has come to, unless all have agreed on it, or it has ended."""
        self.look()
        if self.newest == self.mine and not self.is_agreed:
            self._replace(f"+{self.newest + 1}")

    def _replace(self, word: str) -> None:
        self._word = bytes(self._store.compare_set(self._key, self._word, word)).decode()


class Gathering:
    """all_gather(mine): the bytes of all ranks of a group, in rank order, over its store."""

    def __init__(self, group: Any, deadline: float | None) -> None:
        self._group, self._store = group, store_of(group)
        self._size, self._rank = dist.get_world_size(group), dist.get_rank(group)
        self._limit = seconds("deadline", deadline) or DEADLINE
        self._calls = f"ferry/calls/{self._rank}"  # how many this rank has seen all ranks agree on
        self._found: dict[int, bytes] = {}

    def __call__(self, mine: bytes) -> list[bytes]:
        self._found.clear()
        if self._size == 1:
            return [mine]
        try:
            number, attempts = self._next_call()
            try:
                self._gather(mine, [f"ferry/{number}/{other}" for other in range(self._size)], attempts)
            except BaseException:  # of a signal handler, too
                with contextlib.suppress(dist.DistError):
                    attempts.end()
                raise
            self._conclude(number)
        except dist.DistError as error:  # the process that holds the store has ended
            late = [other for other in self._late() if other != self._rank] or [0 if self._rank else 1]
            raise missing_from(self._group, late, "the group's store is gone, with the process that held it "
                                                  f"({str(error).splitlines()[0]})") from error
        return [self._found[other] for other in range(self._size)]

    def _next_call(self) -> tuple[int, Attempts]:
        number = 1 + (int(self._store.get(self._calls)) if self._store.check([self._calls]) else 0)
        while (attempts := Attempts(self._store, number)).is_agreed:  # interrupted here before it was counted
            self._conclude(number)
            number += 1
        return number, attempts

    def _conclude(self, number: int) -> None:
        """All have agreed on this call, so each has read what the one before it had."""
        self._store.delete_key(f"ferry/{number - 1}/{self._rank}")
        if self._rank == 0:
            self._store.delete_key(attempt_of(number - 1))
        self._store.set(self._calls, str(number))

    def _gather(self, mine: bytes, keys: list[str], attempts: Attempts) -> None:
        end = time.monotonic() + self._limit
        while self._late() or not attempts.is_agreed:
            attempts.look()
            if attempts.newest != attempts.mine:  # the first one, or a rank has given up
                attempts.mine = attempts.newest
                self._found.clear()
                self._store.set(keys[self._rank], b"%d:" % attempts.mine + mine)
            self._look_for(keys, b"%d:" % attempts.mine)
            late = self._late()
            if not late:
                attempts.agree()
            elif time.monotonic() > end:
                attempts.end()
                if not attempts.is_agreed:
                    raise missing_from(self._group, late, f"the deadline is {self._limit:g} s. All of them must call "
                                                          "this, each with the same group")
            else:
                time.sleep(LOOK_EVERY)

    def _late(self) -> list[int]:
        return [other for other in range(self._size) if other not in self._found]

    def _look_for(self, keys: list[str], attempt: bytes) -> None:
        for other in self._late():
            if not self._store.check([keys[other]]):
                continue
            given = bytes(self._store.get(keys[other]))  # the key stays: get() would wait for one that is gone
            if given.startswith(attempt):
                self._found[other] = given[len(attempt):]


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
