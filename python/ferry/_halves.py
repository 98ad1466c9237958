"""Calls whose halves have something between them, and the end of one whose second half could not be done, as where there
was no memory for its rows.

The other ranks have done theirs. So its rows are received into memory that nobody keeps, and this rank takes part in the
next dispatch. Where there is no memory for that either, the next dispatch ends it before it begins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable

from . import _frameworks
from ._errors import Error, InvalidArgument, OutOfOrder, Unsupported
from ._inputs import (NOT_IN_HANDLES, Call, Inputs, combine_inputs, reduces, require_outputs, require_sums, sums_to_fill,
                      without)

if TYPE_CHECKING:
    from ._arrivals import Arrivals
    from ._exchange import Exchange

_LARGER_OUTPUTS = "call dispatch_wait with larger outputs"
MOST_FINDINGS = 8  # of kernels: they come out one by one, and there are fewer kinds


class LeftHalf:
    """In the place of Exchange._dispatching: the next dispatch is to end this one. `read`: what C++ reads until then."""

    def __init__(self, read: object) -> None:
        self.read = read


def begin_dispatch(exchange: Exchange, inputs: Inputs, row_capacity: int | None, extra: tuple[str, ...],
                   zero_padding: bool, call: Call) -> Callable[[], Arrivals]:
    """The first half of a dispatch that makes its outputs; what it returns does the second one, or ends it.

    What the second half could not fill, or could not wait for, is refused before tokens leave.
    """
    require_outputs(exchange._formats, inputs, extra, zero_padding, row_capacity)
    if row_capacity is None and not exchange._on_cpu:
        _require_no_capture(exchange, inputs, extra, call[1])
    exchange._dispatch_async(inputs, call)

    def finish() -> Arrivals:
        try:
            return exchange.dispatch_wait(row_capacity=row_capacity, extra=extra, zero_padding=zero_padding,
                                          deadline=call[0], stream=call[1], max_blocks=call[2])
        except BaseException as error:
            if give_up_half(exchange, error, call[0]) and isinstance(error, InvalidArgument):
                why = str(error).replace(_LARGER_OUTPUTS, "give more room")
                raise InvalidArgument(f"{why}. Meanwhile this dispatch has travelled, and its rows at rank "
                                      f"{exchange.rank} are lost: dispatch again, on all ranks") from error
            raise

    return finish


def _require_no_capture(exchange: Exchange, inputs: Inputs, extra: tuple[str, ...], stream: int) -> None:
    order = inputs.get("row_order", "by_expert")
    if exchange._formats.asks(order, extra) and _frameworks.is_capturing(exchange._framework, stream, exchange._device):
        raise OutOfOrder(f"rank {exchange.rank}: dispatch: the stream is being captured, and without outputs the host "
                         "waits for how many rows come, which only a run of the graph finds out. Give outputs "
                         "(allocate_outputs), or row_capacity for the worst case (layout.least_rows)")


def begin_combine(exchange: Exchange, given: dict[str, Any], sums: dict[str, Any], dtype: Any, unreduced: bool,
                  call: Call) -> Callable[[], Any]:
    """The same of a combine that makes its sums."""
    require_sums(exchange.shape, sums, dtype, unreduced, reduces(*combine_inputs(given, exchange._tokens)))
    exchange._combine_async(given, call)

    def finish() -> Any:
        try:
            return exchange._combine_wait(sums, dtype, unreduced, call)
        except BaseException as error:
            if _give_up_combine(exchange, error, call) and isinstance(error, InvalidArgument):
                raise InvalidArgument(f"{error}. Meanwhile this combine has travelled, and its sums at rank "
                                      f"{exchange.rank} are lost") from error
            raise

    return finish


def give_up_half(exchange: Exchange, error: BaseException, deadline: float | None = None) -> bool:
    """After `error` between dispatch_async and the end of dispatch_wait. The caller raises it again.

    Returns whether rows are lost: no rank refused the dispatch, and the exchange goes on.
    """
    exchange._dispatching = LeftHalf(exchange._dispatching)
    # Whoever interrupts a call waits for nobody.
    is_half_done = not isinstance(error, Exception) or _is_ended(lambda: _receive(exchange, deadline))
    if not is_half_done:
        exchange._dispatching = None
    return is_half_done


def _give_up_combine(exchange: Exchange, error: BaseException, call: Call) -> bool:
    """The same of a combine. Without memory for its sums it stays half done, and combine_wait may follow."""

    def receive() -> None:
        allocate, exchange._allocate = exchange._allocate, _allocate_of_others(exchange)
        try:
            exchange._combine_wait(sums_to_fill(None, None, None, None, None), None, False, call)
        finally:
            exchange._allocate = allocate

    return isinstance(error, Exception) and _is_ended(receive)


def _is_ended(receive: Callable[[], None]) -> bool:
    """Whether there was something to be received; where there was no memory for it, it is still half done."""
    for _ in range(MOST_FINDINGS):
        try:
            receive()
        except InvalidArgument:  # what kernels of earlier calls have found
            continue
        except Error:  # nothing is half done: all ranks refused the dispatch, or the exchange has ended
            return False
        except Exception:
            pass  # no memory
        break
    return True


def end_left_half(exchange: Exchange, deadline: float | None) -> None:
    """While a dispatch is refused as out of order: ends the one that was left half done, or raises the refusal again."""
    if not isinstance(exchange._dispatching, LeftHalf):
        raise
    _receive(exchange, deadline)


def lacks_room(error: InvalidArgument) -> bool:
    """Whether a dispatch waits for larger outputs: its tokens have travelled."""
    return _LARGER_OUTPUTS in str(error)


def _receive(exchange: Exchange, deadline: float | None) -> None:
    allocate, exchange._allocate = exchange._allocate, _allocate_of_others(exchange)
    stream = exchange._stream
    try:
        try:
            room = exchange.wait_for_counts(deadline=deadline, stream=stream)
        except Unsupported:
            room = None  # the worst case
        _, order, stride, format, _ = exchange._begun
        # ferry.torch makes memory for the current stream, whatever stream is given.
        with _frameworks.on_stream(exchange._framework, stream, exchange._device):
            outputs = exchange.allocate_outputs(room, row_order=order, expert_stride=stride, stream=stream, format=format)
        if order == "by_source":  # a dispatch with the bare bytes of a handle may have no ids
            without(NOT_IN_HANDLES, outputs)
        exchange.dispatch_wait(outputs, deadline=deadline, stream=stream)
    finally:
        exchange._allocate = allocate


def _allocate_of_others(exchange: Exchange) -> Any:
    """None: numpy or a framework, since the caller's `allocate` may be what raised; but it is all there is on a GPU where
    no framework is known."""
    return None if exchange._on_cpu or exchange._framework else exchange._allocate
