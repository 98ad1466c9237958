"""In which stream a call runs, and who waits for whom. On CPUs there are none."""

from __future__ import annotations

import contextlib
from typing import Any, Sequence

import torch

from .utils.event import EventHandle, EventOverlap


def is_capturing(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


class Streams:
    """The stream of communication of one buffer. Its calls run one after the other, in whatever stream each is."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._comm: Any = None
        self._last: tuple[Any, Any, bool] | None = None  # stream, event and whether captured, of the newest call

    def comm(self) -> Any:
        if self.device.type != "cuda":
            return torch.cpu.current_stream()
        if self._comm is None:
            self._comm = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        return self._comm

    def call(self, previous_event: Any = None, async_finish: bool = False,
             allocate_on_comm_stream: bool = False) -> Call:
        previous = previous_event.event if isinstance(previous_event, EventOverlap) else previous_event
        return Call(self, previous, async_finish, allocate_on_comm_stream)

    def begins(self, stream: Any, capturing: bool) -> None:
        """Two exchanges of a buffer never run at once: each would want the whole GPU."""
        if self._last is not None and self._last[0] != stream and self._last[2] == capturing:
            stream.wait_event(self._last[1])

    def ends(self, stream: Any, capturing: bool) -> None:
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(stream)
        self._last = (stream, event, capturing)


class Call:
    """One call of a buffer: the stream that it runs in is the current one inside `with`.

    A call that returns when the current stream waits for it anyway runs in that one.
    """

    def __init__(self, streams: Streams, previous: EventHandle | None, is_async: bool, allocates_there: bool) -> None:
        self._streams, self._previous = streams, previous
        self._is_async, self._allocates_there = is_async, allocates_there
        self._is_gpu = streams.device.type == "cuda"
        self._made: list[torch.Tensor] = []
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Call:
        if not self._is_gpu:
            return self
        self._compute = torch.cuda.current_stream(self._streams.device)
        self._capturing = is_capturing(self._streams.device)
        self._stream = self._compute
        if self._is_async or self._previous is not None:
            self._stream = self._streams.comm()
            if self._previous is None:
                self._stream.wait_stream(self._compute)
            elif self._previous.event is not None:
                self._stream.wait_event(self._previous.event)
        self._stack.enter_context(torch.cuda.device(self._streams.device))
        self._stack.enter_context(torch.cuda.stream(self._stream))
        self._streams.begins(self._stream, self._capturing)
        return self

    def __exit__(self, *_: Any) -> None:
        if self._is_gpu:
            self._streams.ends(self._stream, self._capturing)
            if not self._is_async and self._stream is not self._compute:
                self._compute.wait_stream(self._stream)
            self._stack.close()

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """What the call returns: memory of the caller's stream, unless it asked for the other one."""
        device = self._streams.device
        if not self._is_gpu or self._stream is self._compute or self._allocates_there:
            made = torch.empty(tuple(shape), dtype=dtype, device=device)
        else:
            with torch.cuda.stream(self._compute):
                made = torch.empty(tuple(shape), dtype=dtype, device=device)
        self._made.append(made)
        return made

    def event(self, *read: Any) -> EventOverlap:
        """What the call returns of its end. `read`: tensors of the caller. None and other values are passed over."""
        if not self._is_async:
            return EventOverlap()
        if self._is_gpu:
            with torch.cuda.stream(self._stream):
                handle = EventHandle()
            self._keep(read)
            return EventOverlap(handle)
        return EventOverlap(EventHandle())

    def _keep(self, read: Sequence[Any]) -> None:
        """Memory is not used again before both streams are done with it."""
        for tensor in read:
            if isinstance(tensor, torch.Tensor):
                tensor.record_stream(self._stream)
        for tensor in self._made:
            tensor.record_stream(self._compute if self._allocates_there else self._stream)
