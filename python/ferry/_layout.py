"""Questions about sizes, answered before anything is allocated."""

from __future__ import annotations

from typing import Any

from . import _ferry
from ._arguments import flag, int32, names_in, seconds, several, text
from ._errors import InvalidArgument
from ._outputs import number_of
from .formats import Format

_WHOLE = ("expert_alignment", "allreduce_world_size", "message_copies", "concurrent", "workers", "reserve_sms")
_TEXTS = {"format": "text, or a Format", "result_format": "text, or a Format", "reduction": "text"}
_OF_A_FORMAT = ("format", "tiled_scales", "expert_alignment", "dynamic_scales")
_SECONDS = ("deadline", "set_up_deadline")
_NAMES = ("format", "more_formats", "reduction", "tiled_scales", "expert_alignment", "fused_shared_expert", "skip_a2a",
          "allreduce_world_size", "result_format", "late_weights", "returns_weights", "dynamic_scales", "row_orders",
          "message_copies", "concurrent", "mask", "deadline", "set_up_deadline", "workers", "reserve_sms", "short_handles")


def options_of(given: dict[str, Any], ranks: int) -> _ferry.Options:
    """The options of an exchange of so many ranks. None is the default. Raises TypeError for a name that is none."""
    options = _ferry.Options()
    for name, value in given.items():
        if name not in _NAMES:
            raise TypeError(f"there is no option {name}; the options are {', '.join(_NAMES)}")
        if value is None:
            continue
        setattr(options, name, _mask_of(value, ranks) if name == "mask" else _as_taken(name, value))
    return options


def _mask_of(given: Any, ranks: int) -> tuple[int, ...]:
    mask = tuple(int32("a rank of the mask", rank) for rank in several("mask", given, "numbers of ranks"))
    for rank in mask:
        if not 0 <= rank < ranks:
            raise InvalidArgument(f"the mask names rank {rank}; the ranks are 0 to {ranks - 1}")
    return mask


def _further_format(given: Any) -> dict[str, Any]:
    """One of more_formats, by the names of its fields."""
    fields = given if isinstance(given, dict) else {"format": given}
    for name in fields:
        if name not in _OF_A_FORMAT:
            raise TypeError(f"more_formats names {name!r}; a format has {', '.join(_OF_A_FORMAT)}")
    return {name: _as_taken(name, value) for name, value in fields.items()}


def _as_taken(name: str, value: Any) -> Any:
    """The value of an option, as C++ takes it. Raises TypeError that says what it must be."""
    if name in _WHOLE:
        return int32(name, value)
    if name == "row_orders":
        return [text("a name of row_orders", order) for order in names_in(name, value)]
    if name == "more_formats":
        return [_further_format(each) for each in names_in(name, value)]
    if name in _SECONDS:
        return seconds(name, value)
    if name in _TEXTS:
        return text(name, getattr(value, "name", value), _TEXTS[name])
    return flag(name, value)


def shape_of(*, ranks: int, experts: int, top_k: int, max_tokens: int, hidden: int) -> _ferry.Shape:
    return _ferry.Shape(ranks=ranks, experts=experts, top_k=top_k, max_tokens=max_tokens, hidden=hidden)


def exchange_layout(*, ranks: int, experts: int, top_k: int, max_tokens: int, hidden: int, rank: int = 0,
                    in_format: int | str | Format = 0, **options: Any) -> _ferry.RowLayout:
    """How the rows of `rank` lie in an exchange of this shape and these options (those of Exchange).

    `in_format`: of dispatches in one of more_formats: its number, from 1 on, or its name; 0: in `format`.

    Its attributes are those of ferry::RowLayout: groups, alignment, min_row_capacity, payload_row_bytes, scale_dtype,
    scale_layout, scales_per_row, hidden, handle_bytes, expert_rows, sources, top_k, has_global_scales; its methods
    least_rows(row_order, expert_stride), short_handle_bytes(tokens, counts) or (tokens, messages=, rows=), and
    dispatch_outputs(row_capacity, row_order, expert_stride, all), which lists what a dispatch fills: name, dtype,
    shape, alignment, is_optional, nbytes. Raises InvalidArgument.
    """
    shape = shape_of(ranks=ranks, experts=experts, top_k=top_k, max_tokens=max_tokens, hidden=hidden)
    taken = options_of(options, shape.ranks)
    number = number_of("in_format", in_format, [taken.format, *taken.more_formats])
    return _ferry.row_layout(shape, taken, int32("rank", rank), number)


def memory_use(*, ranks: int, experts: int, top_k: int, max_tokens: int, hidden: int, has_remote_ranks: bool = False,
               **options: Any) -> dict[str, int]:
    """Bytes of memory that such an exchange allocates on rank 0, which has the most: by region, and "total"."""
    shape = shape_of(ranks=ranks, experts=experts, top_k=top_k, max_tokens=max_tokens, hidden=hidden)
    return _ferry.memory_use(shape, options_of(options, shape.ranks), flag("has_remote_ranks", has_remote_ranks))


def cuda_state_bytes(*, ranks: int, experts: int, top_k: int, max_tokens: int, hidden: int, rank: int = 0,
                     **options: Any) -> int:
    """Bytes that an exchange on GPUs has on a rank besides memory_use. Raises Unsupported in a build without GPUs."""
    shape = shape_of(ranks=ranks, experts=experts, top_k=top_k, max_tokens=max_tokens, hidden=hidden)
    return _ferry.cuda_state_bytes(shape, options_of(options, shape.ranks), int32("rank", rank))
