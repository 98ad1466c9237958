"""What calls of an Exchange read and fill, as the compiled module takes it."""

from __future__ import annotations

from typing import Any, Dict, Optional, Tuple

from . import _ferry
from ._arguments import flag, require
from ._arrays import Array, name_of_floats
from ._arrivals import Handle
from ._errors import InvalidArgument
from ._hooks import Epilogue, take_hook
from ._outputs import Formats

#: Of a dispatch: tokens, order of rows, stride of experts, number of the format, outputs that it cannot fill.
Begin = Tuple[int, str, int, int, Tuple[str, ...]]
Reduces = Tuple[Optional[int], Any]  #: of a combine: how many tokens its sums are of, and the type of its rows
Call = Tuple[Optional[float], int, int]  #: deadline in seconds, stream, most blocks


_OF_IDS = ("row_topk_ids", "row_topk_weights")
#: What a replay cannot fill where the dispatch of its handle had no ids.
NOT_IN_HANDLES = (*_OF_IDS, "counts")


#: Inputs that are looked for here.
_LOOKED_AT = ("row_order", "expert_stride", "format", "in_rank")


class Inputs(Dict[str, Any]):
    """What a dispatch reads, as the module takes it."""

    cannot_fill: tuple[str, ...] = ()  #: outputs that want ids, where it has none


def dispatch_inputs(tokens: Array, topk_ids: Array | None, topk_weights: Array | None, handle: Handle | Array | None,
                    more: dict[str, Any]) -> Inputs:
    """What a dispatch reads. What is None is not given."""
    inputs = Inputs(tokens=tokens, topk_ids=topk_ids, topk_weights=topk_weights)
    if more:
        # The module refuses a name that it does not know, also of None.
        inputs.update((name, value) for name, value in more.items() if value is not None or name not in _LOOKED_AT)
        take_hook("router_weight", inputs)
        if "in_rank" in inputs:
            inputs.cannot_fill = _OF_IDS
    if isinstance(handle, Handle):
        inputs.setdefault("row_order", handle.row_order)
        inputs.setdefault("expert_stride", handle.expert_stride)
        if not handle.has_ids:
            inputs.cannot_fill = NOT_IN_HANDLES
        handle = handle.data
    if handle is not None:
        inputs["handle"] = handle
    return inputs


def combine_inputs(given: dict[str, Any], tokens: int | None) -> tuple[dict[str, Any], int | None]:
    """What a combine reads, as the module takes it, and of how many tokens it makes sums; None: nobody knows.

    `given`: the rows and what came with them. `tokens`: of the newest dispatch.
    """
    if len(given) == 1:  # the rows alone, mostly
        return given, tokens
    inputs = given.copy()
    take_hook("router_weight", inputs)
    handle = inputs.get("handle")
    if isinstance(handle, Handle):
        inputs["handle"] = handle.data
        return inputs, handle.tokens
    return inputs, tokens if handle is None else None


def begins_of(inputs: Inputs, formats: Formats) -> Begin:
    """What the dispatch that has these inputs begins. Its format becomes a number in them."""
    tokens = inputs["tokens"]
    shape = getattr(tokens, "shape", None)
    if shape is None:
        raise TypeError(f"tokens is {type(tokens)}; it must be an array [n, hidden]: numpy's, or anything with DLPack")
    format = 0
    if "format" in inputs:
        format = inputs["format"] = formats.number(inputs["format"])
    order, stride = inputs.get("row_order", "by_expert"), inputs.get("expert_stride", 0)
    if "handle" in inputs and order == "padded" and stride == 0:
        # Outputs are made for this stride. It is said, so that a handle of another one is refused, not replayed.
        stride = inputs["expert_stride"] = int(formats.layouts[format].expert_rows)
    return int(shape[0]) if len(shape) else 0, order, stride, format, inputs.cannot_fill


def require_outputs(formats: Formats, inputs: Inputs, extra: tuple[str, ...], zero_padding: bool,
                    row_capacity: int | None = None) -> None:
    """Refuses what the second half of a dispatch could not fill, before its first half sends."""
    flag("zero_padding", zero_padding)
    _, order, stride, format, _ = begins_of(inputs, formats)
    formats.specs(row_capacity, order, stride, frozenset(extra), format, 0)
    if zero_padding and order == "in_place":
        raise InvalidArgument("zero_padding is True; rows in_place are not copied, so none of them is padding: leave it out")
    expert_rows = formats.layouts[format].expert_rows
    if "handle" in extra and order == "padded" and 0 < stride < expert_rows:
        raise InvalidArgument(f"leave_handle is True, and expert_stride is {stride}: a dispatch whose padded rows may "
                              f"overflow leaves no handle. Give a stride of {expert_rows} or more (layout.expert_rows)")


def to_fill(outputs: dict[str, Array], zero_padding: bool) -> dict[str, Any]:
    """The outputs of a dispatch as the module takes them."""
    if not isinstance(outputs, dict):
        require("outputs", outputs, False, "a dict of arrays, as allocate_outputs makes")
    return outputs if zero_padding is False else {**outputs, "zero_padding": zero_padding}


def without(names: tuple[str, ...], outputs: dict[str, Array]) -> dict[str, Array]:
    """The new outputs of a dispatch that cannot fill those of these names."""
    for name in names:
        outputs.pop(name, None)
    return outputs


def sums_to_fill(out: Array | None, topk_weights: Array | None, waited_ns: Array | None, epilogue: Epilogue | Any,
                 epilogue_context: Any) -> dict[str, Any]:
    """What a combine fills, as the module takes it: arrays may be None there. Without an epilogue it has none."""
    sums = {"tokens": out, "topk_weights": topk_weights, "waited_ns": waited_ns}
    if epilogue is not None or epilogue_context is not None:
        sums["epilogue"], sums["epilogue_context"] = epilogue, epilogue_context
        take_hook("epilogue", sums)
    return sums


def reduces(inputs: dict[str, Any], tokens: int | None) -> Reduces:
    """What sums the combine that has these inputs makes."""
    return tokens, getattr(inputs.get("rows"), "dtype", None)


def new_sums(shape: _ferry.Shape, dtype: Any, unreduced: bool, sources: Reduces) -> tuple[tuple[int, ...], str]:
    """Shape and type of the sums of a combine."""
    tokens, kind = sources
    if tokens is None:
        raise InvalidArgument("out is None, and the handle is plain memory; give out, or a ferry.Handle")
    if dtype is None and kind is None:
        raise TypeError("rows has no dtype; it must be an array of float32, float16 or bfloat16")
    extents = (tokens, shape.top_k, shape.hidden) if unreduced else (tokens, shape.hidden)
    return extents, name_of_floats(kind, "the dtype of rows") if dtype is None else name_of_floats(dtype)


def require_sums(shape: _ferry.Shape, sums: dict[str, Any], dtype: Any, unreduced: bool, sources: Reduces) -> None:
    """Refuses sums that a combine could not make. `sums`: what it fills."""
    if "epilogue" not in sums:
        new_sums(shape, dtype, unreduced, sources)
    elif unreduced or dtype is not None:
        raise InvalidArgument("unreduced or dtype is given; an epilogue gets sums, and as float32: leave it out")
