"""Functions that calls of an Exchange call back: of Python, or compiled."""

from __future__ import annotations

import ctypes
import operator
from typing import Any, Callable

import numpy as np

from ._arguments import function, require
from ._errors import InvalidArgument

Epilogue = Callable[[int, int, "np.ndarray[Any, np.dtype[np.float32]]"], object]  #: (token, column, values)

_Compiled: Any = ctypes.CFUNCTYPE(None).__base__  # of all functions of ctypes

#: Of a compiled function: its type in C, the bytes of its arguments, and what ctypes calls what it returns.
_TYPES: dict[str, tuple[str, tuple[int, ...], Any]] = {
    "router_weight": ("float (*)(void* context, int token, int k)", (8, 4, 4), ctypes.c_float),
    "epilogue": ("void (*)(void* context, int token, int column, const float* values, int count)", (8, 4, 4, 8, 4), None),
}


def take_hook(name: str, arguments: dict[str, Any]) -> None:
    """Puts the function of that name into `arguments` as the compiled module takes it, and takes its context out.

    That is a function of Python as it is; of a compiled one the address, that of its context, and what keeps both.
    """
    context = arguments.pop(f"{name}_context", None)
    given = arguments.get(name)
    if given is None:
        arguments.pop(name, None)
        _require_no_context(name, context, f"and no {name}")
        return
    address = _address_of(name, given)
    if address is not None:
        arguments[name] = (address, _address_of_context(name, context), given, context)
        return
    function(name, given)
    _require_no_context(name, context, f"and {name} is a function of Python: bind what it needs to it")


def _require_no_context(name: str, context: Any, why: str) -> None:
    if context is not None:
        raise InvalidArgument(f"{name}_context is given, {why}")


def _address_of(name: str, given: Any) -> int | None:
    """The address of a compiled function: of ctypes, or with `ctypes` or `address` as numba's have it. Else None."""
    of_ctypes = given if isinstance(given, _Compiled) else getattr(given, "ctypes", None)
    if isinstance(of_ctypes, _Compiled):
        _require_type(name, of_ctypes)
        return ctypes.cast(of_ctypes, ctypes.c_void_p).value or _refuse_null(name)
    address = getattr(given, "address", None)
    return (address or _refuse_null(name)) if type(address) is int else None


def _refuse_null(name: str) -> int:
    raise InvalidArgument(f"{name} is a null pointer; leave it out, or give a function")


def _require_type(name: str, given: Any) -> None:
    """ctypes knows no type of a function whose argtypes nobody has set: it is taken for the right one."""
    must_be, sizes, returns = _TYPES[name]
    if given.argtypes is None:
        return
    is_right = tuple(map(ctypes.sizeof, given.argtypes)) == sizes and (returns is None or given.restype is returns)
    named = ", ".join(kind.__name__ for kind in given.argtypes)
    require(name, f"({named}) -> {getattr(given.restype, '__name__', None)}", is_right, must_be)


def _address_of_context(name: str, context: Any) -> int:
    """None is null."""
    if context is None:
        return 0
    if isinstance(context, np.ndarray):
        return int(context.ctypes.data)
    if isinstance(context, (ctypes.c_void_p, ctypes._Pointer)):
        return ctypes.cast(context, ctypes.c_void_p).value or 0
    if hasattr(context, "__index__"):
        address = operator.index(context)
        if 0 <= address < 1 << 64:
            return address
    try:
        return ctypes.addressof(context)
    except TypeError:
        raise TypeError(f"{name}_context is {context!r}; it must be an address, an array of numpy, or of ctypes") from None
