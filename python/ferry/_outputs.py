"""The formats that a dispatch of an exchange may take, and what a dispatch fills in each."""

from __future__ import annotations

import functools
from typing import Any, Sequence, Tuple

from . import _ferry
from ._arguments import int32, text, whole_number
from ._errors import InvalidArgument
from .formats import Format

Shape = Tuple[int, ...]
Spec = Tuple[str, Shape, str, int, Shape]  #: name, shape, dtype, alignment, strides


def spec_of(name: str, shape: Shape, dtype: str, alignment: int) -> Spec:
    return name, shape, dtype, alignment, strides_of(shape)


@functools.lru_cache(maxsize=256)
def strides_of(shape: Shape) -> Shape:
    """Of a contiguous array, in elements. An extent of 0 counts as 1, as in torch."""
    strides: Shape = (1,)
    for extent in shape[:0:-1]:
        strides = (strides[0] * max(extent, 1), *strides)
    return strides[:len(shape)]


def number_of(argument: str, asked: Any, names: Sequence[str]) -> int:
    """The place of a format among those of an exchange. `asked`: a number, a name, or a Format."""
    name = getattr(asked, "name", asked)
    if not isinstance(name, str):
        number = int32(argument, asked)
        if 0 <= number < len(names):
            return number
    else:
        named = [index for index, each in enumerate(names) if each == name]
        if len(named) == 1:
            return named[0]
        if named:
            raise InvalidArgument(f"{argument} is {name!r}, which {named} of the exchange are; give the number")
    there = ", ".join(f"{index} ({each})" for index, each in enumerate(names))
    raise InvalidArgument(f"{argument} is {asked!r}; this exchange has {there}")


class Formats:
    """Format 0 is the exchange's own; the others are its more_formats, from 1 on."""

    def __init__(self, core: _ferry.Exchange, formats: Sequence[Format], short_handles: bool) -> None:
        self.formats = tuple(formats)
        self._short_handles = short_handles
        self.layouts = tuple(core.layout_in(index) for index in range(len(self.formats)))
        self._specs: dict[Any, list[Spec]] = {}  # of the newest calls of specs

    def number(self, asked: Any) -> int:
        """The number of a format that a call is given: a number, a name, or a Format."""
        if type(asked) is int and 0 <= asked < len(self.formats):  # as it mostly is
            return asked
        return number_of("format", asked, [each.name for each in self.formats])

    def asks(self, row_order: str, extra: Sequence[str]) -> bool:
        """Whether outputs that hold what comes follow from the counts: padded rows lie at their stride in any case."""
        return row_order != "padded" or self._short_handles and "handle" in extra

    def specs(self, row_capacity: int | _ferry.RowCounts | None, row_order: str, expert_stride: int,
              wanted: frozenset[str], format: int, tokens: int) -> list[Spec]:
        """The outputs of a dispatch of `tokens` of this rank's tokens. Callers mostly ask for the same again."""
        if isinstance(row_capacity, _ferry.RowCounts):
            rows = None if row_order == "padded" else row_capacity.rows
            exact = self.specs(rows, row_order, expert_stride, wanted, format, tokens)
            if not self._short_handles or "handle" not in wanted:
                return exact
            handle = (self.layouts[format].short_handle_bytes(tokens, row_capacity),)
            return [spec_of("handle", handle, "u8", spec[3]) if spec[0] == "handle" else spec for spec in exact]
        asked = (row_capacity, row_order, expert_stride, wanted, format)
        if type(row_capacity) is type(expert_stride) is int and type(row_order) is str and asked in self._specs:
            return self._specs[asked]
        row_order, expert_stride = text("row_order", row_order), whole_number("expert_stride", expert_stride, 64)
        if row_capacity is not None:
            row_capacity = whole_number("row_capacity", row_capacity, 64)
        asked = (row_capacity, row_order, expert_stride, wanted, format)
        if asked in self._specs:
            return self._specs[asked]
        layout = self.layouts[format]
        if row_capacity is None:
            row_capacity = layout.least_rows(row_order, expert_stride)
        usual = {spec.name for spec in layout.dispatch_outputs(row_capacity, row_order, expert_stride, False)}
        specs = layout.dispatch_outputs(row_capacity, row_order, expert_stride, True)
        unknown = wanted - {spec.name for spec in specs}
        if unknown:
            raise InvalidArgument(f"extra names {', '.join(sorted(map(str, unknown)))}; rows {row_order} have "
                                  f"{', '.join(spec.name for spec in specs if spec.name not in usual)}")
        if len(self._specs) > 15:  # rows as many as came differ from call to call
            self._specs.clear()
        found = [spec_of(spec.name, tuple(spec.shape), spec.dtype, spec.alignment) for spec in specs
                 if spec.name in usual | wanted]
        self._specs[asked] = found
        return found
