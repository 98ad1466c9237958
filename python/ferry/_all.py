"""One call of one thread for several exchanges of this process."""

from __future__ import annotations

import functools
import queue
import threading
from typing import Any, Callable, Mapping, Sequence

from ._arguments import flag, names_in, require
from ._arrays import Array
from ._arrivals import Arrivals
from ._errors import Closed, InvalidArgument
from ._exchange import Exchange
from ._halves import begin_combine, begin_dispatch
from ._inputs import Call, dispatch_inputs, sums_to_fill
from ._world import _run_all

Arguments = Mapping[str, Any]


def dispatch_all(exchanges: Sequence[Exchange], calls: Sequence[Arguments], **common: Any) -> list[Arrivals]:
    """exchanges[i].dispatch(**calls[i], **common) of all i; the Arrivals in that order.

        worlds = ferry.make_thread_worlds(2)
        exchanges = ferry.run_worlds(worlds, lambda world: ferry.Exchange(world, **shape))  # made collectively
        arrivals = ferry.dispatch_all(exchanges, [dict(tokens=tokens[r], topk_ids=ids[r]) for r in range(2)])
        sums = ferry.combine_all(exchanges, [dict(rows=rows) for rows in map(my_experts, arrivals)])

    CPU ranks  a thread for each; all are awaited. Ctrl-C aborts their worlds
    GPU ranks  this thread enqueues the kernels of all. `stream` in a call; left out, the current one of each GPU. With
               outputs or row_capacity in each call nothing is waited for, else the counts are

    Raises InvalidArgument where the lengths differ or an exchange is there twice, and Closed: none has been called then.
    Otherwise all are called, also after an error of another one, whose ranks wait until the deadline; the first error
    comes out.
    """
    return _each("dispatch_all", exchanges, calls, common, "dispatch", _begin_dispatch)


def combine_all(exchanges: Sequence[Exchange], calls: Sequence[Arguments], **common: Any) -> list[Array]:
    """exchanges[i].combine(**calls[i], **common) of all i; the sums in that order. All else as dispatch_all."""
    return _each("combine_all", exchanges, calls, common, "combine", _begin_combine)


def _each(call: str, exchanges: Sequence[Exchange], calls: Sequence[Arguments], common: Arguments, method: str,
          begin: Callable[[Exchange, dict[str, Any]], Callable[[], Any]]) -> list[Any]:
    _require_usable(call, exchanges, calls)
    given = [{**of_one, **common} for of_one in calls]
    results: list[Any] = [None] * len(exchanges)
    errors: list[BaseException] = []

    def run(place: int, work: Callable[[], Any]) -> None:
        try:
            results[place] = work()
        except BaseException as error:  # pylint: disable=broad-except
            errors.append(error)

    begun: dict[int, Callable[[], Any]] = {}
    waiting: dict[int, Callable[[], Any]] = {}
    for place, exchange in enumerate(exchanges):
        if exchange.device == "cpu":
            waiting[place] = functools.partial(getattr(exchange, method), **given[place])
            continue
        try:
            begun[place] = begin(exchange, given[place])
        except Exception as error:  # pylint: disable=broad-except
            errors.append(error)
    for place, finish in begun.items():
        run(place, finish)
    _run_on_threads([exchanges[place] for place in waiting],
                    [functools.partial(run, place, work) for place, work in waiting.items()])
    if errors:
        raise errors[0]
    return results


def _require_usable(call: str, exchanges: Sequence[Exchange], calls: Sequence[Arguments]) -> None:
    for name, given, elements in (("exchanges", exchanges, "exchanges"), ("calls", calls, "arguments of calls")):
        require(f"{call}: {name}", given, isinstance(given, Sequence) and not isinstance(given, (str, bytes)),
                f"a list of {elements}")
    if len(exchanges) != len(calls):
        raise InvalidArgument(f"{call}: exchanges and calls have {len(exchanges)} and {len(calls)} elements; give "
                              "arguments for each exchange")
    for place, exchange in enumerate(exchanges):
        if not isinstance(exchange, Exchange):
            raise TypeError(f"{call}: exchanges[{place}] is {exchange!r}; it must be a ferry.Exchange")
        require(f"{call}: calls[{place}]", calls[place], isinstance(calls[place], Mapping), "a dict of arguments")
        if exchange.closed:
            raise Closed(f"{call}: exchanges[{place}] is closed")
        first = next(other for other, one in enumerate(exchanges) if one is exchange)
        if first != place:
            raise InvalidArgument(f"{call}: exchanges[{first}] and exchanges[{place}] are the same; give each exchange "
                                  "once")


# Memory that a framework makes for one rank may wait for the kernels of all. So, where there is some to make, the first
# halves of all ranks stand in their streams before it is made: those kernels wait for no second half.

def _begin_dispatch(exchange: Exchange, given: dict[str, Any]) -> Callable[[], Any]:
    """Enqueues what waits for no other rank of this thread; what it returns does the rest."""
    if given.get("outputs") is not None:
        arrivals = exchange.dispatch(**given)
        return lambda: arrivals
    _taken(given, outputs=None)
    room, extra, leaves, zero_padding = _taken(given, row_capacity=None, extra=(), leave_handle=False, zero_padding=False)
    extra = (*names_in("extra", extra), *(["handle"] if flag("leave_handle", leaves) else []))
    tokens, ids, weights, handle = _taken(given, tokens=None, topk_ids=None, topk_weights=None, handle=None)
    call = _call_of(exchange, tokens, given)
    return begin_dispatch(exchange, dispatch_inputs(tokens, ids, weights, handle, given), room, extra, zero_padding, call)


def _begin_combine(exchange: Exchange, given: dict[str, Any]) -> Callable[[], Any]:
    if given.get("out") is not None:
        sums = exchange.combine(**given)
        return lambda: sums
    dtype, unreduced = _taken(given, dtype=None, unreduced=False)
    fills = sums_to_fill(*_taken(given, out=None, topk_weights_out=None, waited_ns=None, epilogue=None,
                                 epilogue_context=None))
    call = _call_of(exchange, given.setdefault("rows", None), given)
    return begin_combine(exchange, given, fills, dtype, unreduced, call)


def _taken(given: dict[str, Any], **defaults: Any) -> list[Any]:
    """Arguments of these names, which `given` no longer has."""
    return [given.pop(name, default) for name, default in defaults.items()]


def _call_of(exchange: Exchange, array: Array, given: dict[str, Any]) -> Call:
    deadline, stream, max_blocks = _taken(given, deadline=None, stream=None, max_blocks=0)
    return deadline, exchange._number(stream, array), max_blocks


def _run_on_threads(exchanges: Sequence[Exchange], works: Sequence[Callable[[], None]]) -> None:
    """Runs works[i], which calls exchanges[i] and raises nothing. What interrupts this thread ends the waits of all."""
    if len(works) == 1:
        return works[0]()
    finished: queue.SimpleQueue[int] = queue.SimpleQueue()

    def run(place: int, work: Callable[[], None]) -> None:
        try:
            work()
        finally:
            finished.put(place)

    threads = [threading.Thread(target=run, args=(place, work), name=f"ferry rank {exchanges[place].rank}", daemon=True)
               for place, work in enumerate(works)]
    _run_all(threads, finished, [exchange._world for exchange in exchanges])
