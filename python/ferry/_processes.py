"""Worlds whose ranks are processes: how they meet, and which world they get."""

from __future__ import annotations

from typing import Callable, Sequence, Union

from . import _ferry
from ._arguments import flag, function, int32, require, seconds, text
from ._errors import InvalidArgument

#: Gathers bytes of all processes, as many of each: theirs in rank order, one by one or in one piece.
AllGather = Callable[[bytes], Union[bytes, Sequence[bytes]]]
_BYTES = (bytes, bytearray, memoryview)


def place(*, address: str = "", rank: int = -1, size: int = 0, local_rank: int = -1,
          job: str = "") -> _ferry.ProcessPlace:
    """Where this process stands among those of the world. What is left out comes from the environment."""
    return _ferry.ProcessPlace(text("address", address, "text, host:port"), int32("rank", rank), int32("size", size),
                               int32("local_rank", local_rank), text("job", job))


def open_world(where: _ferry.ProcessPlace, device: str, share_gpus: bool, all_gather: AllGather | None,
               deadline: float | None) -> _ferry.World:
    """Collective over the processes: this process's end of the world."""
    flag("share_gpus", share_gpus)
    gather = None if all_gather is None else in_one_piece(all_gather)
    limit = seconds("deadline", deadline)
    if device == "cpu":
        return _ferry.make_process_world(where, gather, limit)
    return _ferry.make_cuda_process_world(where, gpu_named(device, "cpu, "), share_gpus, gather, limit)


def gpu_named(device: str, others: str = "") -> int:
    """The number of a GPU: 1 of "cuda:1"; -1 of "cuda", which leaves it open. `others`: what else it might be."""
    kind, _, index = text("device", device, f"text: {others}cuda or a GPU, such as cuda:1").partition(":")
    if kind != "cuda" or not (index.isdecimal() or device == "cuda"):
        raise InvalidArgument(f"device is '{device}'; it must be {others}cuda or a GPU, such as cuda:1")
    return int(index or -1)


def in_one_piece(all_gather: AllGather) -> Callable[[bytes], bytes]:
    """The same function, whose result is in one piece."""
    function("all_gather", all_gather)

    def gather(mine: bytes) -> bytes:
        gathered = all_gather(mine)
        if isinstance(gathered, _BYTES):
            return bytes(gathered)
        require("what all_gather returned", gathered, hasattr(gathered, "__iter__"), "the bytes of all ranks")
        parts = [bytes(require(f"what all_gather gave for rank {rank}", part, isinstance(part, _BYTES), "bytes"))
                 for rank, part in enumerate(gathered)]
        for rank, part in enumerate(parts):
            if len(part) != len(mine):
                raise InvalidArgument(f"all_gather gave {len(part)} bytes for rank {rank}; each rank gives {len(mine)}")
        return b"".join(parts)
    return gather
