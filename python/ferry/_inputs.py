"""What calls of an Exchange read and fill, as the compiled module takes it."""

from __future__ import annotations

from typing import Any, Optional, Tuple

from ._arguments import require
from ._arrays import Array
from ._arrivals import Handle
from ._hooks import take_hook
from ._outputs import Formats

Begin = Tuple[int, str, int, int]  #: of a dispatch: tokens, order of rows, stride of experts, number of the format
Call = Tuple[Optional[float], int, int]  #: deadline in seconds, stream, most blocks


def dispatch_inputs(tokens: Array, topk_ids: Array | None, topk_weights: Array | None, handle: Handle | Array | None,
                    more: dict[str, Any]) -> dict[str, Any]:
    """What a dispatch reads, as the module takes it: arguments that are None are left out."""
    inputs = {"tokens": tokens}
    if topk_ids is not None:
        inputs["topk_ids"] = topk_ids
    if topk_weights is not None:
        inputs["topk_weights"] = topk_weights
    for name, value in more.items():
        if value is not None:
            inputs[name] = value
    take_hook("router_weight", inputs)
    if isinstance(handle, Handle):
        inputs.setdefault("row_order", handle.row_order)
        inputs.setdefault("expert_stride", handle.expert_stride)
        handle = handle.data
    if handle is not None:
        inputs["handle"] = handle
    return inputs


def combine_inputs(rows: Array, more: dict[str, Any], tokens: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a combine reads, as the module takes it, and what sums it makes: of how many tokens, in which type.

    `tokens`: of the newest dispatch.
    """
    handle = more.get("handle")
    count: int | None = tokens if handle is None else None
    if isinstance(handle, Handle):
        count = handle.tokens
        more = {**more, "handle": handle.data}
    inputs = {name: value for name, value in {"rows": rows, **more}.items() if value is not None}
    take_hook("router_weight", inputs)
    return inputs, {"tokens": count, "dtype": getattr(rows, "dtype", None)}


def _length(tokens: Array) -> int:
    shape = getattr(tokens, "shape", None)
    if shape is None:
        raise TypeError(f"tokens is {type(tokens)}; it must be an array [n, hidden]: numpy's, or anything with DLPack")
    return int(shape[0]) if len(shape) else 0


def begins_of(inputs: dict[str, Any], formats: Formats) -> Begin:
    """What the dispatch that has these inputs begins. Its format becomes a number in them."""
    format = 0
    if "format" in inputs:
        format = inputs["format"] = formats.number(inputs["format"])
    return _length(inputs["tokens"]), inputs.get("row_order", "by_expert"), inputs.get("expert_stride", 0), format


def to_fill(outputs: dict[str, Array], zero_padding: bool) -> dict[str, Any]:
    """The outputs of a dispatch as C++ takes them."""
    require("outputs", outputs, isinstance(outputs, dict), "a dict of arrays, as allocate_outputs makes")
    return outputs if zero_padding is False else {**outputs, "zero_padding": zero_padding}
