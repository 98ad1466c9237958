"""What the environment says. What it cannot mean is refused by the variable, its value and the limit."""

from __future__ import annotations

import os
from typing import Callable, TypeVar

_Number = TypeVar("_Number", int, float)
_MOST_SECONDS = 86400  # of every deadline of Ferry
_MOST = 2**31 - 1


def seconds(name: str, default: float) -> float:
    """A deadline."""
    return _number(name, default, float, lambda given: 0 < given <= _MOST_SECONDS,
                   f"a number of seconds above 0 and at most {_MOST_SECONDS}")


def whole_number(name: str, default: int, least: int = 0) -> int:
    return _number(name, default, int, lambda given: least <= given <= _MOST,
                   f"a whole number of at least {least} and at most {_MOST}")


def asks_for(name: str) -> bool:
    asked = os.environ.get(name, "0")
    if asked not in ("0", "1"):
        raise ValueError(f"{name} is {asked!r}; it must be 0 or 1")
    return asked == "1"


def _number(name: str, default: _Number, kind: Callable[[str], _Number], fits: Callable[[_Number], bool],
            must_be: str) -> _Number:
    text = os.environ.get(name)
    if text is None:
        return default
    given: _Number | None
    try:
        given = kind(text)
    except ValueError:
        given = None
    if given is None or not fits(given):
        raise ValueError(f"{name} is {text!r}; it must be {must_be}")
    return given
