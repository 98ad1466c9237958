"""Worlds over OpenSHMEM and NVSHMEM: libraries beside the compiled module, which are loaded when they are asked for."""

from __future__ import annotations

import atexit
import os
import pathlib
import sys
import threading
import weakref
from typing import Protocol

from . import _ferry
from ._arguments import seconds, whole_number
from ._errors import InvalidArgument
from ._processes import AllGather, in_one_piece


class Closable(Protocol):
    def close(self) -> None: ...


def _library(name: str) -> str:
    return str(pathlib.Path(_ferry.__file__).with_name(f"libferry_{name}_transport.so"))


class _ShmemJob:
    """This process in the job of OpenSHMEM's launcher, which is started once and ended at the end of Python."""

    def __init__(self, heap_bytes: int, deadline: float | None) -> None:
        self._core = _ferry.start_shmem(_library("shmem"), heap_bytes, deadline)
        self._process = os.getpid()
        self._open: weakref.WeakSet[Closable] = weakref.WeakSet()
        atexit.register(self._finish)

    def make_world(self, nodes: int, deadline: float | None) -> _ferry.World:
        return self._core.make_world(nodes, deadline)

    def keep_track(self, of: Closable) -> None:
        self._open.add(of)

    def _finish(self) -> None:
        """Collective. Not after an exception that ended the program: then the others wait for what will not come."""
        if os.getpid() != self._process or getattr(sys, "last_value", None) is not None:
            return
        for each in list(self._open):
            each.close()
        self._core.finish()


_job: _ShmemJob | None = None
_lock = threading.Lock()


def open_shmem_world(nodes: int, heap_bytes: int, deadline: float | None) -> _ferry.World:
    """Collective over the processes of the job, which it starts if there is none yet."""
    global _job
    heap_bytes, deadline = _bytes_of_heap(heap_bytes), seconds("deadline", deadline)
    with _lock:
        if _job is None:
            _job = _ShmemJob(heap_bytes, deadline)
        return _job.make_world(nodes, deadline)


def _bytes_of_heap(given: int) -> int:
    heap_bytes = whole_number("heap_bytes", given, 64)
    if heap_bytes < 0:
        raise InvalidArgument(f"heap_bytes is {heap_bytes}; it must be 0 or more")
    return heap_bytes


def close_at_end(of: Closable) -> None:
    """A world or an exchange of OpenSHMEM's, if it is one: no memory of the others is there after the job's end."""
    if _job is not None:
        _job.keep_track(of)


def open_nvshmem_world(place: _ferry.ProcessPlace, device: int, split: tuple[int, int, int, bool],
                       all_gather: AllGather | None, deadline: float | None) -> _ferry.World:
    """Collective over the processes. `split`: nodes, ranks_per_node, heap_bytes, share_gpus."""
    nodes, ranks_per_node, heap_bytes, share_gpus = split
    whole = (nodes, ranks_per_node, _bytes_of_heap(heap_bytes), share_gpus)
    gather = None if all_gather is None else in_one_piece(all_gather)
    return _ferry.make_nvshmem_world(_library("nvshmem"), place, device, whole, gather,
                                     seconds("deadline", deadline))
