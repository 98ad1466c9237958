"""One exchange for all layers of a shape: their rounds follow each other, or have handles."""

from __future__ import annotations

import json
import os
import weakref
from typing import Any

from .._errors import InvalidArgument
from ..torch import Exchange

_MOST_SECONDS = 86400  # of every deadline
_exchanges: weakref.WeakValueDictionary[tuple[Any, ...], Exchange] = weakref.WeakValueDictionary()


def exchange_of(group: Any, device: Any, **options: Any) -> Exchange:
    """The exchange of these ranks with these options, as long as anybody has it; else a new one: collective over the
    group, so all ranks come here for their layers in the same order. They meet within the deadline of its calls, where
    that is given: until then an engine may load a model."""
    if "deadline" in options:
        options.setdefault("set_up_deadline", options["deadline"])
    key = (group, str(device), json.dumps(options, sort_keys=True))
    exchange = _exchanges.get(key)
    if exchange is None or exchange.closed:
        exchange = Exchange.from_group(group, device=device, **options)
        _exchanges[key] = exchange
    return exchange


def deadline_of(name: str) -> float:
    """The seconds that a variable of the environment gives the waits of an adapter; 600 where it is not set."""
    text = os.environ.get(name, "600")
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= _MOST_SECONDS:
        raise InvalidArgument(f"{name} is {text!r}; it must be a number of seconds above 0 and at most {_MOST_SECONDS}")
    return seconds


def open_exchanges() -> list[Exchange]:
    """Those that anybody still has, in the order in which all ranks made them."""
    return [exchange for exchange in list(_exchanges.values()) if not exchange.closed]
