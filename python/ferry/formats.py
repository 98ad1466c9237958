"""Token formats: how a token travels and how it lies in a row. docs/formats.md has every byte.

    for name in ferry.formats.names():
        payload, scales = ferry.formats.encode(name, tokens)
        values = ferry.formats.decode(name, payload, scales, hidden)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from . import _ferry
from ._arguments import require, text
from ._arrays import Array, empty
from ._errors import InvalidArgument


class Format:
    """A format by its numbers. format_named makes one."""

    def __init__(self, core: _ferry.Format) -> None:
        is_made = isinstance(core, _ferry.Format)
        self._core: _ferry.Format = require("core", core, is_made, "what format_named makes")
        self.name: str = core.name
        self.block: int = core.block  #: columns that share a scale; 0 without scales, and of bytes_format
        self.scale_bytes: int = core.scale_bytes  #: of one scale, 1 or 4; 0 without scales
        self.scale_layout: str = core.scale_layout  #: where rows keep them: none, row_major, transposed, tiled
        self.alignment: int = core.alignment  #: default alignment of an expert's first row
        self.takes_input_scale: bool = core.takes_input_scale
        self.encodes: bool = core.encodes  #: False for bytes_format: encode and decode raise InvalidArgument

    @property
    def scale_dtype(self) -> str:
        """"f32", "u8", or "none" without scales."""
        return {0: "none", 1: "u8", 4: "f32"}[self.scale_bytes]

    def payload_bytes(self, hidden: int) -> int:
        """Bytes of a row's codes. hidden is a multiple of 32: else it and its like raise InvalidArgument."""
        return self._core.payload_bytes(hidden)

    def scales_per_row(self, hidden: int) -> int:
        """Scales of a row."""
        return self._core.scales_per_row(hidden)

    def message_bytes(self, hidden: int) -> int:
        """Bytes of a token on its way: payload and scales, up to a multiple of 16."""
        return self._core.message_bytes(hidden)

    def encode(self, tokens: Array, *, input_scale: float = 1.0
               ) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any] | None]:
        """Encodes bf16, f16 or f32 [n, hidden], contiguous.

        Returns (payload, scales): u8 [n, payload_bytes(hidden)], and f32 or u8 [n, scales_per_row(hidden)] in column
        order, None without scales. Raises InvalidArgument.
        """
        n, hidden = _rows_and_columns("tokens", tokens)
        try:
            payload = empty((n, self.payload_bytes(hidden)), "u8", 16)
        except InvalidArgument as error:
            raise InvalidArgument(f"tokens has shape [{n}, {hidden}]: {error}") from None
        scales = empty((n, self.scales_per_row(hidden)), self.scale_dtype, 16) if self.block else None
        self._core.encode(tokens, payload, scales, input_scale)
        return payload, scales

    def decode(self, payload: Array, scales: Array | None, hidden: int, *, input_scale: float = 1.0
               ) -> np.ndarray[Any, Any]:
        """The values of rows that encode made: f32 [n, hidden]. Raises InvalidArgument."""
        n, _ = _rows_and_columns("payload", payload)
        self.payload_bytes(hidden)  # refuses what hidden cannot be
        values = np.empty((n, hidden), np.float32)
        self._core.decode(payload, scales, values, input_scale)
        return values

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Format) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __reduce__(self) -> tuple[Any, ...]:
        return format_named, (self.name,)

    def __repr__(self) -> str:
        return f"ferry.formats.format_named({self.name!r})"


def _rows_and_columns(name: str, array: Array) -> tuple[int, int]:
    shape = tuple(getattr(array, "shape", np.shape(array)))
    if len(shape) != 2:
        raise InvalidArgument(f"{name} has shape {list(shape)}; it must have two axes, rows and columns")
    return int(shape[0]), int(shape[1])


def format_named(name: str) -> Format:
    """The format of that name. Raises InvalidArgument that lists the names."""
    return Format(_ferry.format_named(text("format", name, "text: a name, as names() has them")))


def bytes_format(payload_bytes: int, *, scales_per_row: int = 0, scale_bytes: int = 4,
                 scale_layout: str = "row_major") -> Format:
    """A format for tokens that are encoded in a way that Ferry does not know: its bytes are never looked at.

    Tokens are u8 [n, payload_bytes], payload_bytes a multiple of 16. With scales, token_scales is f32
    [n, scales_per_row] for scales of 4 bytes, u8 for those of 1 byte, and u8 [n, 2 * scales_per_row] for those of 2.
    `scale_layout` says how rows keep them: row_major, transposed (of 1 or 4 bytes) or tiled (of 1 byte). An Exchange
    takes the format as `format` or in `more_formats`, also by its name. Raises InvalidArgument.
    """
    layout = text("scale_layout", scale_layout, "text: row_major, transposed or tiled")
    return Format(_ferry.bytes_format(payload_bytes, scales_per_row, scale_bytes, layout))


def names() -> list[str]:
    """The formats in which tokens travel."""
    return [core.name for core in _ferry.all_formats()]


def result_names() -> list[str]:
    """The formats in which results may travel home."""
    return [core.name for core in _ferry.result_formats()]


def encode(name: str, tokens: Array, *, input_scale: float = 1.0
           ) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any] | None]:
    """As Format.encode."""
    return format_named(name).encode(tokens, input_scale=input_scale)


def decode(name: str, payload: Array, scales: Array | None, hidden: int, *, input_scale: float = 1.0
           ) -> np.ndarray[Any, Any]:
    """As Format.decode."""
    return format_named(name).decode(payload, scales, hidden, input_scale=input_scale)
