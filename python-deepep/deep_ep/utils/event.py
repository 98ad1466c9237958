"""Points in a stream of a GPU that another stream can wait for. On CPUs nothing is ever waited for."""

from __future__ import annotations

from typing import Any, Callable, Sequence

import torch


class EventHandle:
    """A point in the current stream, taken when this object is made."""

    def __init__(self) -> None:
        self.event: Any = torch.cuda.Event() if torch.cuda.is_available() else None  # type: ignore[no-untyped-call]
        if self.event is not None:
            self.event.record()

    def current_stream_wait(self) -> None:
        """What is enqueued on the current stream from now on runs after that point."""
        if self.event is not None:
            torch.cuda.current_stream().wait_event(self.event)


class EventOverlap:
    """An event, and what must live until someone has waited for it.

    event          None: the call that returned this has waited already
    extra_tensors  kept until this object goes
    """

    def __init__(self, event: EventHandle | None = None, extra_tensors: Sequence[Any] | None = None) -> None:
        self.event = event
        self.extra_tensors = extra_tensors
        self.hook_after_wait: Callable[[], Any] | None = None
        self._releases = False

    def current_stream_wait(self, release_handle: bool = False) -> None:
        """The current stream waits for the event. `release_handle`: lets go of the event and its tensors, too."""
        if self.event is not None:
            self.event.current_stream_wait()
        hook, self.hook_after_wait = self.hook_after_wait, None
        if hook is not None:
            hook()
        if release_handle:
            self.event = self.extra_tensors = None

    def register_hook_after_wait(self, hook_after_wait: Callable[[], Any]) -> None:
        """It runs once, behind the next current_stream_wait."""
        if self.hook_after_wait is not None:
            raise RuntimeError("register_hook_after_wait was called twice; an event has one hook at a time: wait first")
        self.hook_after_wait = hook_after_wait

    def __call__(self, release_handle: bool = False) -> EventOverlap:
        """For `with event(release_handle=True):`."""
        self._releases = release_handle
        return self

    def __enter__(self) -> EventOverlap:
        return self

    def __exit__(self, *_: Any) -> None:
        self.current_stream_wait(self._releases)
