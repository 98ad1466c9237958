"""In which stream a call runs, and who waits for whom. On CPUs there are none."""

from __future__ import annotations

import contextlib
import ctypes
import functools
from typing import Any, Sequence

import torch

from ._arguments import name_as_callers_do, told
from .utils.event import EventHandle, EventOverlap


def is_capturing(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


@functools.cache
def _driver() -> Any:
    return ctypes.CDLL("libcuda.so.1")


def capture_of(stream: Any) -> int:
    """The number that CUDA gives the capture which this stream is in; 0: it is in none."""
    status, number = ctypes.c_int(0), ctypes.c_uint64(0)
    failed = _driver().cuStreamGetCaptureInfo_v2(ctypes.c_void_p(stream.cuda_stream), ctypes.byref(status),
                                                 ctypes.byref(number), None, None, None)
    if failed:
        raise RuntimeError(f"cuStreamGetCaptureInfo failed with {failed}: the capture of {stream} has ended by an error")
    return number.value if status.value else 0


def torch_fills_memory() -> bool:
    """Whether torch.empty enqueues a kernel."""
    fills = getattr(torch.utils.deterministic, "fill_uninitialized_memory")  # noqa: B009  # type checkers do not know it
    return torch.are_deterministic_algorithms_enabled() and bool(fills)


def require_event(name: str, given: Any) -> EventHandle | None:
    """What a call is to wait for first, if anything."""
    event = given.event if isinstance(given, EventOverlap) else given
    if event is None or isinstance(event, EventHandle):
        return event
    raise TypeError(f"{name} is {told(given)}; it must be an EventHandle or an EventOverlap")


class Streams:
    """The stream of communication of one buffer. Its calls run one after the other, in whatever stream each is."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._comm: Any = None
        # Stream, event and capture of the newest eager call, and of the newest captured one.
        self._last: dict[bool, tuple[Any, Any, int]] = {}

    def comm(self) -> Any:
        if self.device.type != "cuda":
            return torch.cpu.current_stream()
        if self._comm is None:
            self._comm = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        return self._comm

    def call(self, previous_event: Any = None, async_finish: bool = False,
             allocate_on_comm_stream: bool = False) -> Call:
        return Call(self, require_event("previous_event", previous_event), async_finish, allocate_on_comm_stream)

    def begins(self, stream: Any, capture: int) -> None:
        """Two exchanges of a buffer never run at once: each would want the whole GPU. An event of a capture is of no use
        outside of it; calls of several captures are in the order of the graphs' launches. `capture`: 0: an eager call."""
        last = self._last.get(capture != 0)
        if last is not None and last[0] != stream and last[2] == capture:
            stream.wait_event(last[1])

    def ends(self, stream: Any, capture: int) -> None:
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(stream)
        self._last[capture != 0] = (stream, event, capture)


class Call:
    """One call of a buffer: the stream that it runs in is the current one inside `with`.

    A call that returns when the current stream waits for it anyway runs in that one.
    """

    def __init__(self, streams: Streams, previous: EventHandle | None, is_async: bool, allocates_there: bool) -> None:
        self._streams, self._previous = streams, previous
        self._is_async, self._allocates_there = is_async, allocates_there
        self._is_gpu = streams.device.type == "cuda"
        self._made: list[torch.Tensor] = []

    def __enter__(self) -> Call:
        if not self._is_gpu:
            return self
        self._compute = torch.cuda.current_stream(self._streams.device)
        self._capture = capture_of(self._compute) if is_capturing(self._streams.device) else 0
        self._stream = self._compute
        if self._is_async or self._previous is not None:
            self._stream = self._streams.comm()
            if self._previous is None:
                self._stream.wait_stream(self._compute)
            elif self._previous.event is not None:
                self._stream.wait_event(self._previous.event)
        with contextlib.ExitStack() as stack:  # which an error leaves again
            stack.enter_context(torch.cuda.device(self._streams.device))
            stack.enter_context(torch.cuda.stream(self._stream))
            self._streams.begins(self._stream, self._capture)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: Any, error: BaseException | None, *_: Any) -> None:
        name_as_callers_do(error)
        if not self._is_gpu:
            return
        with self._stack:
            self._streams.ends(self._stream, self._capture)
            # Where it raises, its outputs are free again at once, and kernels that it has begun may still write them.
            if (not self._is_async or error is not None) and self._stream is not self._compute:
                self._compute.wait_stream(self._stream)

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """What the call returns: memory of the caller's stream, unless it asked for the other one."""
        device = self._streams.device
        if not self._is_gpu or self._stream is self._compute or self._allocates_there:
            made = torch.empty(tuple(shape), dtype=dtype, device=device)
        else:
            with torch.cuda.stream(self._compute):
                made = torch.empty(tuple(shape), dtype=dtype, device=device)
            if torch_fills_memory():
                self._stream.wait_stream(self._compute)
        self._made.append(made)
        return made

    def event(self, *read: Any) -> EventOverlap:
        """What the call returns of its end. `read`: tensors of the caller. None and other values are passed over."""
        if not self._is_async:
            if self._is_gpu and self._allocates_there and self._stream is not self._compute:
                self._keep(())  # the caller's stream has waited, but what comes next in the other one may not wait for it
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
