"""What arguments must be. What is not is refused by its name and value, before C++ sees it."""

from __future__ import annotations

import operator
from typing import Any, Iterable

import numpy as np

from ._errors import InvalidArgument


def require(name: str, value: Any, is_right: bool, must_be: str) -> Any:
    """The value. Raises TypeError that says what it must be."""
    if not is_right:
        raise TypeError(f"{name} is {value!r}; it must be {must_be}")
    return value


def whole_number(name: str, value: Any, bits: int) -> int:
    """The number, for an argument of C++ that has so many bits. True and False are none."""
    limit = 1 << bits - 1
    if type(value) is int and -limit <= value < limit:  # as it mostly is
        return value
    try:
        number = None if is_flag(value) else operator.index(value)
    except TypeError:
        number = None
    if number is None:
        raise TypeError(f"{name} is {value!r}; it must be a whole number")
    if not -limit <= number < limit:
        raise InvalidArgument(f"{name} is {number}; it must fit {bits} bits: at most {limit - 1}, at least {-limit}")
    return number


def int32(name: str, value: Any) -> int:
    return whole_number(name, value, 32)


def seconds(name: str, value: Any) -> float | None:
    """The number; None as it is. C++ judges how large it is."""
    if value is None:
        return None
    return float(require(name, value, hasattr(value, "__float__") and not is_flag(value), "a number of seconds"))


def is_flag(value: Any) -> bool:
    return isinstance(value, (bool, np.bool_))


def flag(name: str, value: Any) -> bool:
    return bool(require(name, value, is_flag(value), "True or False"))


def text(name: str, value: Any, must_be: str = "text") -> str:
    found: str = value if isinstance(value, str) else require(name, value, False, must_be)
    return found


def function(name: str, value: Any) -> Any:
    return require(name, value, callable(value), "a function")


def several(name: str, value: Any, must_be: str) -> tuple[Any, ...]:
    """The elements of what can be iterated over and is no text."""
    return tuple(require(name, value, hasattr(value, "__iter__") and not isinstance(value, (str, bytes)), must_be))


def names_in(argument: str, given: str | Iterable[str]) -> tuple[str, ...]:
    """The names of an argument that takes one or several."""
    if type(given) is tuple:  # as it mostly is
        return given
    return (given,) if isinstance(given, str) else several(argument, given, "a name, or several")
