"""Operators of torch: what a compiler sees of dispatch and combine, and their gradients.

Each has a fake, which knows the shapes, and an effect: calls of exchanges stay in the order of the program, which is
that of all ranks, and none is dropped. An exchange is an argument by its name. docs/torch.md has the equations.
"""

from __future__ import annotations

from typing import Any, Callable, NoReturn

import torch
from torch._library.effects import EffectType

from .. import _exchange as plain
from .._arrivals import Handle
from .._errors import InvalidArgument, Unsupported
from .._halves import give_up_half, lacks_room
from ._exchange import Exchange, open_exchange
from ._tensors import is_eager, is_recorded

EXACT = -1  #: of `rows`: as many as come; the host waits for the counts
Seven = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def dispatch(tokens: torch.Tensor, topk_ids: torch.Tensor, topk_weights: torch.Tensor | None, exchange: str,
             row_order: str, rows: int, dtype: torch.dtype, codes: bool) -> Seven:
    """(values, row_weights, row_offsets, row_info, handle, payload, scales); the last two are empty without `codes`.

    row_info: src_info; of rows by_source row_topk_ids.
    """
    opened = open_exchange(exchange)
    extra = ("handle",) if row_order == "by_source" else ("handle", "row_weights")
    with opened._on_device() as stream:
        clears = codes or _reads_padding(opened._base, tokens)
        outputs = _zeroed(opened._base, rows, row_order, extra, clears)
        sized = {} if rows == EXACT else opened._sized(rows, row_order)
        try:
            found = opened._base.dispatch(tokens, topk_ids, topk_weights, row_order=row_order, outputs=outputs,
                                          extra=extra, zero_padding=clears or row_order != "by_expert", **sized,
                                          **stream)
        except InvalidArgument as error:
            if lacks_room(error):
                _refuse_rows(opened, rows, error)
            raise
        values, empty = _values(found, dtype), tokens.new_empty(0, dtype=torch.uint8)
    by_source = row_order == "by_source"
    offsets = found.source_offsets if by_source else found.row_offsets
    payload, scales = empty, torch.empty_like(empty)
    if codes and not _values_are_codes(opened, dtype):
        payload = found.arrays["payload"]
    if codes and found.scales is not None:
        scales = found.arrays["scales"]
    return (values, found.row_topk_weights if by_source else found.row_weights, offsets,
            found.row_topk_ids if by_source else found.src_info, found.arrays["handle"], payload, scales)


def _refuse_rows(opened: Exchange, rows: int, error: InvalidArgument) -> NoReturn:
    """Ends the dispatch for which `rows` were too few, as on other ranks: there is no second half to be called here."""
    came = opened._base.wait_for_counts().rows
    give_up_half(opened._base, error)
    raise InvalidArgument(f"rank {opened.rank}: rows is {rows}; {came} came, and are lost: give rows={came} or more "
                          "(Exchange.most_rows has room for any dispatch), or None: as many as come") from error


def combine(rows: torch.Tensor, row_weights: torch.Tensor | None, handle: torch.Tensor, exchange: str, row_order: str,
            tokens: int, dtype: torch.dtype) -> torch.Tensor:
    """The sums [tokens, hidden] of rows times the weights that their dispatch took. Without row_weights: of rows.

    row_weights is what that dispatch said of them: its gradient is that of the weights, its values are not read.
    """
    opened = open_exchange(exchange)
    sums = rows.new_empty((tokens, opened.hidden), dtype=dtype)
    with opened._on_device() as stream:
        opened._base.combine(rows, handle=Handle(handle, tokens, row_order, 0), out=sums,
                             apply_weights=row_weights is not None, **stream)
    return sums


def replay(tokens: torch.Tensor, handle: torch.Tensor, exchange: str, row_order: str, rows: int,
           dtype: torch.dtype) -> torch.Tensor:
    """The gradients of a combine's sums at the rows that they came from: [rows, hidden], padding as zeros."""
    gradients = open_exchange(exchange).gradients()
    with open_exchange(exchange)._on_device() as stream:
        clears = _reads_padding(gradients.exchange, tokens)
        outputs = _zeroed(gradients.exchange, rows, row_order, (), clears)
        # As many rows come as the handle's dispatch had, so they fit. A GPU's host does not know that and asks for the
        # worst case, unless it is told that rows may overflow.
        is_exact = rows < gradients.exchange.layout.least_rows(row_order, 0)
        sized: dict[str, Any] = {"overflow": "expected"} if is_exact and tokens.device.type == "cuda" else {}
        found = gradients.exchange.dispatch(tokens, handle=Handle(handle, tokens.shape[0], row_order, 0),
                                            outputs=outputs, zero_padding=clears, **sized, **stream)
        return _values(found, dtype)


def send_home(rows: torch.Tensor, row_values: torch.Tensor | None, row_info: torch.Tensor, handle: torch.Tensor,
              exchange: str, row_order: str, tokens: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """The gradients of a dispatch's tokens [tokens, hidden], and of its router weights f32 [tokens, K]."""
    opened = open_exchange(exchange)
    sums = rows.new_empty((tokens, opened.hidden), dtype=dtype)
    with opened._on_device() as stream:
        weights = opened.gradients().send_home(rows, row_values, row_info[:, -1], Handle(handle, tokens, row_order, 0),
                                               sums, stream)
    return sums, rows.new_empty((0, opened.top_k), dtype=torch.float32) if weights is None else weights


def _reads_padding(exchange: plain.Exchange, tokens: torch.Tensor) -> bool:
    """Whether the payload of padding comes out as values: of bf16, which they are, and by the decoder of CPUs."""
    return tokens.device.type == "cpu" or exchange._format.name == "bf16"


def _zeroed(exchange: plain.Exchange, rows: int, row_order: str, extra: tuple[str, ...], clears: bool
            ) -> dict[str, Any] | None:
    """Outputs of a fixed size. What no call writes is zeros, of no token: past the last row by_expert, past all groups of
    padded rows, and what is said of their padding. `clears`: payload and scales, too."""
    if rows == EXACT:
        return None
    outputs = exchange.allocate_outputs(rows, row_order=row_order, extra=extra)
    if row_order != "by_source":
        outputs["src_info"].fill_(-1)
    if row_order == "by_expert" or row_order == "padded" and rows > exchange._formats.layouts[0].least_rows("padded", 0):
        for name in outputs.keys() & ({"payload", "scales", "row_weights"} if clears else {"row_weights"}):
            outputs[name].zero_()
    return outputs


def _values_are_codes(opened: Exchange, dtype: torch.dtype) -> bool:
    """Then an operator returns them once: none of its outputs is another one."""
    return opened.format.name == "bf16" and dtype == torch.bfloat16


def _values(found: Any, dtype: torch.dtype) -> torch.Tensor:
    """On a CPU, and of bf16, of a dispatch that cleared its padding: past the last row by_source something may lie."""
    if found._format.name == "bf16":
        payload: torch.Tensor = found.payload
        return payload.to(dtype)
    values: torch.Tensor = found.decoded(dtype)
    is_marked = values.device.type != "cpu" or found.row_order != "by_source"
    return values if is_marked else values.masked_fill_(~found.has_token[:, None], 0)


# ---- fakes: the shapes alone


def _size(rows: int) -> int:
    return torch.library.get_ctx().new_dynamic_size() if rows == EXACT else rows  # type: ignore[return-value]


def _fake_dispatch(tokens: torch.Tensor, topk_ids: torch.Tensor, topk_weights: torch.Tensor | None, exchange: str,
                   row_order: str, rows: int, dtype: torch.dtype, codes: bool) -> Seven:
    opened = open_exchange(exchange)
    size, by_source, i32 = _size(rows), row_order == "by_source", torch.int32
    payload = tokens.new_empty(0, dtype=torch.uint8)
    scales = torch.empty_like(payload)
    if codes:
        payload, scales = _fake_codes(opened, tokens, size, row_order, dtype)
    return (tokens.new_empty((size, opened.hidden), dtype=dtype),
            tokens.new_empty((size, opened.top_k) if by_source else (size,), dtype=torch.float32),
            tokens.new_empty((opened.ranks if by_source else opened.groups) + 1, dtype=i32),
            tokens.new_empty((size, opened.top_k if by_source else 2), dtype=i32),
            tokens.new_empty(_size(rows) if rows == EXACT and opened.leaves_short_handles else opened.handle_bytes,
                             dtype=torch.uint8), payload, scales)


def _fake_codes(opened: Exchange, tokens: torch.Tensor, size: int, row_order: str, dtype: torch.dtype
                ) -> tuple[torch.Tensor, torch.Tensor]:
    layout, name = opened.layout, opened.format.name
    none = tokens.new_empty(0, dtype=torch.uint8)
    if name == "bf16":
        is_none = _values_are_codes(opened, dtype)
        return none if is_none else tokens.new_empty((size, opened.hidden), dtype=torch.bfloat16), none
    payload = tokens.new_empty((size, layout.payload_row_bytes), dtype=torch.uint8)
    specs = {spec.name: spec for spec in layout.dispatch_outputs(size, row_order, 0, False)}
    kind = torch.float32 if specs["scales"].dtype == "f32" else torch.uint8
    return payload, tokens.new_empty(tuple(specs["scales"].shape), dtype=kind)


def _fake_combine(rows: torch.Tensor, row_weights: torch.Tensor | None, handle: torch.Tensor, exchange: str,
                  row_order: str, tokens: int, dtype: torch.dtype) -> torch.Tensor:
    return rows.new_empty((tokens, open_exchange(exchange).hidden), dtype=dtype)


def _fake_replay(tokens: torch.Tensor, handle: torch.Tensor, exchange: str, row_order: str, rows: int,
                 dtype: torch.dtype) -> torch.Tensor:
    return tokens.new_empty((_size(rows), tokens.shape[1]), dtype=dtype)


def _fake_send_home(rows: torch.Tensor, row_values: torch.Tensor | None, row_info: torch.Tensor, handle: torch.Tensor,
                    exchange: str, row_order: str, tokens: int, dtype: torch.dtype
                    ) -> tuple[torch.Tensor, torch.Tensor]:
    opened = open_exchange(exchange)
    return (rows.new_empty((tokens, opened.hidden), dtype=dtype),
            rows.new_empty((0 if row_values is None else tokens, opened.top_k), dtype=torch.float32))


# ---- gradients


def _laid_out(gradient: torch.Tensor) -> torch.Tensor:
    """As a call reads it: autograd may give a view that is negated when it is read."""
    return gradient.contiguous().resolve_neg()


def _keep_of_dispatch(ctx: Any, inputs: tuple[Any, ...], output: Seven) -> None:
    tokens, _, weights, ctx.exchange, ctx.row_order, *_ = inputs
    ctx.tokens, ctx.dtype = tokens.shape[0], tokens.dtype
    ctx.weights = None if weights is None else weights.dtype
    ctx.save_for_backward(output[3], output[4])


def _through_dispatch(ctx: Any, values: torch.Tensor, row_weights: torch.Tensor, *_: Any) -> tuple[Any, ...]:
    """A token's gradient is the sum of those of its rows; a weight's is that of its row."""
    row_info, handle = ctx.saved_tensors
    wanted = _laid_out(row_weights) if ctx.weights is not None and ctx.needs_input_grad[2] else None
    sums, weights = call_of("send_home", values, wanted)(_laid_out(values), wanted, row_info, handle, ctx.exchange,
                                                         ctx.row_order, ctx.tokens, ctx.dtype)
    return sums, None, None if wanted is None else weights.to(ctx.weights), None, None, None, None, None


def _keep_of_combine(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    rows, row_weights, handle, ctx.exchange, ctx.row_order, *_ = inputs
    ctx.rows, ctx.dtype, ctx.weighted = rows.shape[0], rows.dtype, row_weights is not None
    ctx.save_for_backward(*([rows, row_weights, handle] if ctx.weighted else [handle]))


def _through_combine(ctx: Any, sums: torch.Tensor) -> tuple[Any, ...]:
    """A row's gradient is that of its token times its weight; the weight's is the product of the two rows."""
    saved = ctx.saved_tensors  # once: a checkpoint recomputes at the first reading, and refuses another
    handle = saved[-1]
    values = call_of("replay", sums)(_laid_out(sums), handle, ctx.exchange, ctx.row_order, ctx.rows,
                                     torch.float32 if ctx.weighted else ctx.dtype)
    if not ctx.weighted:
        return values, None, None, None, None, None, None
    rows, row_weights, _ = saved
    of_weights = (rows.to(torch.float32) * values).sum(1) if ctx.needs_input_grad[1] else None
    return (values * row_weights[:, None]).to(ctx.dtype), of_weights, None, None, None, None, None


def _refuse(ctx: Any, *_: Any) -> NoReturn:
    raise Unsupported("a second derivative through dispatch or combine: their backward passes are not recorded; leave "
                      "create_graph off")


class _RecordedDispatch(torch.autograd.Function):
    """The operator's forward and backward, as eager autograd records them without the layers of an operator."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Seven:
        output = dispatch(*inputs)
        _keep_of_dispatch(ctx, inputs, output)
        return output

    backward = staticmethod(_through_dispatch)


class _RecordedCombine(torch.autograd.Function):
    """See _RecordedDispatch."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> torch.Tensor:
        output = combine(*inputs)
        _keep_of_combine(ctx, inputs, output)
        return output

    backward = staticmethod(_through_combine)


_FAKES: dict[Callable[..., Any], Callable[..., Any]] = {
    dispatch: _fake_dispatch, combine: _fake_combine, replay: _fake_replay, send_home: _fake_send_home}
_CALLS = {call.__name__: call for call in _FAKES}
_RECORDED: dict[str, Callable[..., Any]] = {"dispatch": _RecordedDispatch.apply, "combine": _RecordedCombine.apply}


def call_of(name: str, *tensors: torch.Tensor | None) -> Callable[..., Any]:
    """What to call for the operator `name`. Where somebody looks on, the operator. Else the function that it calls; where
    autograd records one of the tensors, by an autograd.Function. A backward pass that is itself recorded has none, so
    the operator refuses it."""
    if is_eager(*tensors):
        call = _RECORDED.get(name) if is_recorded(*tensors) else _CALLS[name]
        if call is not None:
            return call
    operator: Callable[..., Any] = getattr(torch.ops.ferry, name)
    return operator


def _define() -> None:
    for call, fake in _FAKES.items():
        operator = torch.library.custom_op(f"ferry::{call.__name__}", call, mutates_args=())
        operator.register_fake(fake)
        operator.register_effect(EffectType.ORDERED)
    torch.library.register_autograd("ferry::dispatch", _through_dispatch, setup_context=_keep_of_dispatch)
    torch.library.register_autograd("ferry::combine", _through_combine, setup_context=_keep_of_combine)
    for name in ("ferry::replay", "ferry::send_home"):
        torch.library.register_autograd(name, _refuse)


_define()
