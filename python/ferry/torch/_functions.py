"""Dispatch and combine as functions that autograd records and torch.compile follows."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch.autograd import forward_ad

from .._arguments import int32, require
from .._errors import InvalidArgument, Unsupported
from . import _ops
from ._exchange import Exchange
from ._tensors import FLOATS, PLAIN, codes_of, scales_of


class Rows(NamedTuple):
    """The rows of a dispatch. N is their number, G this rank's groups, R the ranks, K top_k.

    Rows by_expert lie by group; of `padded` each group has the same room, layout.expert_rows of the exchange; by_source
    there is one row for each token that names an expert of this rank. Padding, and rows past the last one, are zeros
    with weight 0.
    """

    values: torch.Tensor  #: [N, hidden], decoded
    row_weights: torch.Tensor  #: f32 [N]; by_source [N, K], 0 where row_info is -1
    row_offsets: torch.Tensor  #: int32 [G + 1]: where groups begin, and the end; by_source [R + 1]: where sources do
    row_info: torch.Tensor  #: int32 [N, 2]: token and k at its home; by_source [N, K]: local experts, else -1
    handle: torch.Tensor  #: uint8 [handle_bytes], or fewer with short_handles
    payload: torch.Tensor  #: with codes=True: the codes, as they came; empty where values are their memory
    scales: torch.Tensor  #: with codes=True: their scales, in the format's layout
    tokens: int  #: how many this rank dispatched
    row_order: str


def dispatch(exchange: Exchange, tokens: torch.Tensor, topk_ids: torch.Tensor,
             topk_weights: torch.Tensor | None = None, *, rows: int | None = None, row_order: str = "by_expert",
             dtype: torch.dtype | None = None, codes: bool = False) -> Rows:
    """Sends each token to the ranks of its experts; returns the rows that came to this rank. Collective.

    tokens        bfloat16, float16 or float32 [n, hidden]
    topk_ids      int32 or int64 [n, K], distinct in a token; -1 is no expert
    topk_weights  float32, bfloat16 or float16 [n, K]; None: 1
    rows          room for so many; None: exactly those that come, for which the host waits; compiled or captured:
                  exchange.most_rows(row_order), which any dispatch fits
    row_order     by_expert, padded, or by_source
    dtype         of the values; None: that of tokens
    codes         whether Rows have payload and scales, for a matmul that reads the format; they have no gradient

    The gradients of the values go home to tokens, those of row_weights to topk_weights; encoding counts as the
    identity. Backward is collective, too: what requires grad on one rank does on all. What is not contiguous is copied.
    Raises as Exchange.dispatch.
    """
    require_recorded(exchange, "dispatch", {"tokens": tokens, "topk_ids": topk_ids})
    require("codes", codes, isinstance(codes, bool), "True or False")
    if not exchange.format.encodes:
        raise InvalidArgument(f"dispatch: the exchange's format is {exchange.format.name}, whose bytes nothing encodes or "
                              "decodes, and Rows have values: call exchange.dispatch, whose rows are the bytes")
    if topk_weights is not None:
        require_recorded(exchange, "dispatch", {"topk_weights": topk_weights})
    if row_order not in ("by_expert", "padded", "by_source"):
        raise InvalidArgument(f"row_order is {row_order!r}; ferry.torch.dispatch has by_expert, padded and by_source")
    if rows is not None and not isinstance(rows, torch.SymInt) and int32("rows", rows) < 0:
        raise InvalidArgument(f"rows is {rows}; it must be 0 or more, or None: as many as come")
    if rows is None:
        rows = exchange.most_rows(row_order) if row_order == "padded" or _is_fixed(exchange) else _ops.EXACT
    kind = tokens.dtype if dtype is None else dtype
    if kind not in FLOATS:
        name = "the dtype of tokens" if dtype is None else "dtype"
        raise InvalidArgument(f"{name} is {kind}; it must be bfloat16, float16 or float32")
    call = _ops.call_of("dispatch", tokens, topk_ids, topk_weights)
    found: _ops.Seven = call(tokens.contiguous(), topk_ids.contiguous(),
                             None if topk_weights is None else topk_weights.contiguous(), exchange.name, row_order,
                             rows, kind, codes)
    if found[1].requires_grad and (topk_weights is None or not topk_weights.requires_grad):
        found = (found[0], found[1].detach(), *found[2:])
    payload, scales = (part.detach() if part.requires_grad else part for part in found[5:])
    if codes and payload.dim() > 1:
        payload = codes_of(exchange.format.name, payload)
    if codes and scales.dim() > 1:
        scales = scales_of(exchange.format.name, scales)
    return Rows(*found[:5], payload=payload, scales=scales, tokens=tokens.shape[0], row_order=row_order)


def combine(exchange: Exchange, rows: torch.Tensor, arrived: Rows, *, apply_weights: bool = True,
            dtype: torch.dtype | None = None) -> torch.Tensor:
    """Sends the experts' results home: [tokens, hidden], for each token the sum of its rows. Collective.

    rows           bfloat16, float16 or float32 [N, hidden], where the rows of `arrived` lie. Padding is not read
    arrived        what dispatch returned
    apply_weights  times arrived.row_weights, as dispatch returned them: changed ones are not read, the handle has the
                   weights. False: rows are weighted already, as rows by_source always are
    dtype          of the sums; None: that of rows

    Rows that are not contiguous are copied.
    """
    require_recorded(exchange, "combine", {"rows": rows})
    require("arrived", arrived, isinstance(arrived, Rows), "the Rows that dispatch returned")
    require("apply_weights", apply_weights, isinstance(apply_weights, bool), "True or False")
    if dtype is not None and dtype not in FLOATS:
        raise InvalidArgument(f"dtype is {dtype}; it must be bfloat16, float16 or float32")
    weighted = apply_weights and arrived.row_order != "by_source"
    call = _ops.call_of("combine", rows, arrived.row_weights, arrived.handle)
    room = arrived.row_weights.shape[0]
    # Gradients of rows come back as rows of `arrived`.
    if call is not _ops.combine and (rows.dim() != 2 or rows.shape[0] != room):
        raise InvalidArgument(f"rows is {list(rows.shape)}; where gradients are recorded it must be "
                              f"[{room}, {exchange.hidden}], as the values of `arrived`: leave padding in")
    found: torch.Tensor = call(
        rows.contiguous(), arrived.row_weights if weighted else None, arrived.handle, exchange.name, arrived.row_order,
        arrived.tokens, rows.dtype if dtype is None else dtype)
    return found


def _is_fixed(exchange: Exchange) -> bool:
    if torch.compiler.is_compiling():
        return True
    return exchange.device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def require_recorded(exchange: Exchange, call: str, inputs: dict[str, torch.Tensor]) -> None:
    """Refuses what these functions would misread, or whose gradients they would lose."""
    require("exchange", exchange, isinstance(exchange, Exchange), "a ferry.torch.Exchange")
    for name, tensor in inputs.items():
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{name} is {type(tensor)}; it must be a torch.Tensor on {exchange.device}")
        if type(tensor) not in PLAIN and hasattr(tensor, "to_local"):
            raise TypeError(f"{name} is a {type(tensor).__name__}; it must be the plain tensor of this rank: give to_local()")
        if tensor.is_nested:
            raise TypeError(f"{name} is a nested tensor; it must be a plain one: give torch.cat(unbind())")
        if tensor.layout is not torch.strided:
            raise TypeError(f"{name} has layout {tensor.layout}; it must be strided: give to_dense()")
        if tensor.device != exchange.device:
            raise InvalidArgument(f"{name} is on {tensor.device}; this exchange's tensors are on {exchange.device}")
        if not torch.compiler.is_compiling() and forward_ad._current_level >= 0 and \
                forward_ad.unpack_dual(tensor).tangent is not None:  # type: ignore[no-untyped-call]
            raise Unsupported(f"{call}: {name} has a forward-mode tangent, which would be lost; take gradients by "
                              "backward")
        if tensor.requires_grad and torch.is_grad_enabled() and not exchange.trains:
            raise InvalidArgument(f"{call}: {name} requires grad, and the exchange was made for inference; make it "
                                  "with backward=\"bf16\"")
