"""Who waits for whom, by streams that only note it."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch

from deep_ep import _streams


class Stream:
    def __init__(self, name: str, capture: int = 0) -> None:
        self.name, self.capture = name, capture
        self.waits: list[Any] = []

    def wait_event(self, event: Event) -> None:
        assert event.capture == self.capture, "an event of another capture"
        self.waits.append(event.name)

    def wait_stream(self, other: Stream) -> None:
        self.capture = other.capture
        self.waits.append(other.name)


class Event:
    name, capture = "", 0

    def record(self, stream: Stream) -> None:
        self.name, self.capture = stream.name, stream.capture


class Gpu:
    """The current stream is `current`; is_in is how deep in contexts the thread is."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.current, self.comm, self.is_in = Stream("compute"), Stream("comm"), 0
        self.streams = _streams.Streams(torch.device("cuda:0"))
        self.streams._comm = self.comm
        for name, fake in {"Event": Event, "current_stream": lambda *_: self.current, "device": self.inside,
                           "stream": self.inside, "is_current_stream_capturing": lambda: self.current.capture != 0
                           }.items():
            patch.setattr(torch.cuda, name, fake)
        patch.setattr(_streams, "capture_of", lambda stream: stream.capture, raising=False)

    @contextlib.contextmanager
    def inside(self, *_: Any) -> Any:
        self.is_in += 1
        try:
            yield
        finally:
            self.is_in -= 1

    def run(self, is_async: bool = False) -> None:
        with self.streams.call(async_finish=is_async):
            assert self.is_in == 2
        assert self.is_in == 0


def test_calls_wait_within_their_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Gpu(monkeypatch)
    gpu.run(is_async=True)
    assert gpu.comm.waits == ["compute"]
    for capture in (7, 8):  # each ends with a call in the other stream, and begins with one in its own
        gpu.current = Stream("captured", capture)
        gpu.run()
        assert gpu.current.waits == [], "neither an eager call nor another capture"
        gpu.run(is_async=True)
        gpu.run()
        assert gpu.current.waits == ["comm"]
    gpu.current, gpu.comm.capture = Stream("later"), 0
    gpu.run()
    assert gpu.current.waits == ["comm"], "the eager call before the captures"


def test_a_call_waits_for_what_fills_its_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where torch fills new memory it does so in the caller's stream, which the call else would not wait for."""
    monkeypatch.setattr(torch, "empty", lambda *_, **__: None)
    for fills, waits in ((False, []), (True, ["compute"])):
        gpu = Gpu(monkeypatch)
        monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: fills)  # noqa: B023
        with gpu.streams.call() as call:  # in the caller's stream
            call.empty((1,), torch.uint8)
        assert gpu.current.waits == gpu.comm.waits == []
        with gpu.streams.call(async_finish=True) as call:
            gpu.comm.waits.clear()
            call.empty((1,), torch.uint8)
        assert gpu.comm.waits == waits


class Made:
    """Memory that notes which streams it is kept for."""

    def __init__(self) -> None:
        self.kept: list[str] = []

    def record_stream(self, stream: Stream) -> None:
        self.kept.append(stream.name)


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("allocates_there", [False, True])
def test_memory_is_kept_for_the_other_stream(allocates_there: bool, is_async: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind an event the communication stream does not wait for the caller's, so not for its reads of what it got."""
    monkeypatch.setattr(torch, "empty", lambda *_, **__: Made())
    monkeypatch.setattr(_streams, "torch_fills_memory", lambda: False)
    gpu, event = Gpu(monkeypatch), _streams.EventHandle()
    event.event = Event()
    with gpu.streams.call(event, is_async, allocates_there) as call:
        made: Any = call.empty((1,), torch.uint8)
        call.event()
    assert made.kept == (["compute"] if allocates_there else ["comm"] if is_async else [])


@pytest.mark.parametrize("raises", [False, True])
def test_the_callers_stream_waits_for_what_a_call_that_raises_has_begun(raises: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody keeps its outputs: memory of that stream, which kernels in the other one may still write."""
    gpu = Gpu(monkeypatch)
    with contextlib.suppress(RuntimeError), gpu.streams.call(async_finish=True):
        if raises:
            raise RuntimeError("late")
    assert gpu.current.waits == (["comm"] if raises else [])


def test_an_error_at_the_beginning_leaves_the_streams_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Gpu(monkeypatch)

    def fails(*_: Any) -> None:
        raise RuntimeError("no event")

    monkeypatch.setattr(gpu.streams, "begins", fails)
    with pytest.raises(RuntimeError, match="no event"):
        gpu.run()
    assert gpu.is_in == 0
