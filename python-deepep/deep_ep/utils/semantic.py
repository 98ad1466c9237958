"""Values that may be left out, and methods that remember what they returned."""

from __future__ import annotations

import functools
import weakref
from typing import Any, Callable


def value_or(value: Any, default: Any) -> Any:
    return default if value is None else value


def weak_lru(maxsize: int | None = 128, typed: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """functools.lru_cache for methods: each object has a cache of its own, which goes with it."""

    def remembering(method: Callable[..., Any]) -> Callable[..., Any]:
        caches: weakref.WeakKeyDictionary[Any, Callable[..., Any]] = weakref.WeakKeyDictionary()

        @functools.wraps(method)
        def call(self: Any, *args: Any, **more: Any) -> Any:
            if self not in caches:
                held = weakref.ref(self)  # the cache of an object must not keep it
                caches[self] = functools.lru_cache(maxsize, typed)(lambda *a, **m: method(held(), *a, **m))
            return caches[self](*args, **more)

        return call

    return remembering
