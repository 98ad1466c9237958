"""Ends a dispatch whose second half could not be done, as where there was no memory for its rows.

The other ranks have done theirs. So its rows are received into memory that nobody keeps, and this rank takes part in the
next dispatch. Where there is no memory for that either, the next dispatch ends it before it begins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._errors import Error, InvalidArgument, Unsupported
from ._inputs import NOT_IN_HANDLES, without

if TYPE_CHECKING:
    from ._exchange import Exchange


class LeftHalf:
    """In the place of Exchange._dispatching: the next dispatch is to end this one. `read`: what C++ reads until then."""

    def __init__(self, read: object) -> None:
        self.read = read


def give_up_half(exchange: Exchange, error: BaseException, deadline: float | None = None) -> None:
    """After `error` between dispatch_async and the end of dispatch_wait. The caller raises it again."""
    exchange._dispatching = LeftHalf(exchange._dispatching)
    if not isinstance(error, Exception):
        return  # whoever interrupts a call waits for nobody
    try:
        _receive(exchange, deadline)
    except Error:  # nothing is half done: all ranks refused the dispatch, or the exchange has ended
        exchange._dispatching = None
    except Exception:
        pass  # no memory


def end_left_half(exchange: Exchange, deadline: float | None) -> None:
    """While a dispatch is refused as out of order: ends the one that was left half done, or raises the refusal again."""
    if not isinstance(exchange._dispatching, LeftHalf):
        raise
    _receive(exchange, deadline)


def lacks_room(error: InvalidArgument) -> bool:
    """Whether a dispatch waits for larger outputs: its tokens have travelled."""
    return "call dispatch_wait with larger outputs" in str(error)


def _receive(exchange: Exchange, deadline: float | None) -> None:
    allocate, exchange._allocate = exchange._allocate, None  # the caller's may be what raised
    stream = exchange._stream
    try:
        try:
            room = exchange.wait_for_counts(deadline=deadline, stream=stream)
        except Unsupported:
            room = None  # the worst case
        _, order, stride, format, _ = exchange._begun
        outputs = exchange.allocate_outputs(room, row_order=order, expert_stride=stride, stream=stream, format=format)
        if order == "by_source":  # a dispatch with the bare bytes of a handle may have no ids
            without(NOT_IN_HANDLES, outputs)
        exchange.dispatch_wait(outputs, deadline=deadline, stream=stream)
    finally:
        exchange._allocate = allocate
