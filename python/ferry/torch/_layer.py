"""MoELayer: router, dispatch, experts with SwiGLU, combine."""

from __future__ import annotations

from typing import Iterator

import torch
from torch import nn
from torch.nn import functional

from .._arguments import int32, require
from .._errors import InvalidArgument
from ._exchange import Exchange
from ._functions import Rows, combine, dispatch, require_recorded


class TopKRouter(nn.Module):
    """The top_k largest of softmax(x W), in float32. `normalize`: a token's weights add up to 1."""

    def __init__(self, hidden: int, experts: int, top_k: int, *, normalize: bool = True,
                 device: torch.device | None = None) -> None:
        super().__init__()
        self.top_k, self.normalize = top_k, normalize
        self.linear = nn.Linear(hidden, experts, bias=False, device=device)

    def forward(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(ids [n, K], weights float32 [n, K])"""
        with torch.autocast(tokens.device.type, enabled=False):  # it would take bfloat16, and with it other experts
            scores = torch.softmax(functional.linear(tokens.float(), self.linear.weight.float()), dim=-1)
        weights, ids = torch.topk(scores, self.top_k, dim=-1)
        return ids, weights / weights.sum(-1, keepdim=True) if self.normalize else weights


class MoELayer(nn.Module):
    """A layer of experts over the ranks of an exchange: [..., hidden] -> the same shape and type.

    Each rank has the parameters of its own experts: gate_up [groups, hidden, 2 * inter], gates first, and down [groups,
    inter, hidden]. Those of router and shared expert are of every rank: make them alike, and add up or average their
    gradients as for data parallelism. The gradients of experts have the tokens of all ranks in them: they are sums of
    what the losses of all ranks give.

    exchange      made with backward=, to train. Its format says how tokens travel; gradients travel in `backward`
    inter         columns of an expert between its two matmuls, a multiple of 8
    shared_inter  those of an expert that every token of this rank has beside the others; 0: none
    router        module: tokens [n, hidden] -> (ids [n, K], weights [n, K]); None: a TopKRouter
    rows          as at dispatch: None: as many as come; compiled: what any dispatch fits
    dtype         of the experts' parameters; compute_dtype: of their matmuls, None: the same

    Matmuls are torch.nn.functional.grouped_mm, which GPUs have in bfloat16 and for rows at multiples of 8: there the
    exchange needs expert_alignment=8, or a multiple.
    """

    def __init__(self, exchange: Exchange, inter: int, *, shared_inter: int = 0, router: nn.Module | None = None,
                 rows: int | None = None, dtype: torch.dtype | None = None, compute_dtype: torch.dtype | None = None
                 ) -> None:
        super().__init__()
        self._require_usable(exchange, inter)
        require("router", router, router is None or callable(router), "a module, or None: a TopKRouter")
        if int32("shared_inter", shared_inter) < 0:
            raise InvalidArgument(f"shared_inter is {shared_inter}; it must be 0 or more")
        hidden, groups, device = exchange.hidden, exchange.groups, exchange.device
        self.exchange, self.rows, self.compute_dtype = exchange, rows, compute_dtype
        self.router = TopKRouter(hidden, exchange.experts, exchange.top_k, device=device) if router is None else router
        self.gate_up = nn.Parameter(torch.empty(groups, hidden, 2 * inter, device=device, dtype=dtype))
        self.down = nn.Parameter(torch.empty(groups, inter, hidden, device=device, dtype=dtype))
        self.shared_gate_up: nn.Linear | None = None
        self.shared_down: nn.Linear | None = None
        if shared_inter:
            self.shared_gate_up = nn.Linear(hidden, 2 * shared_inter, bias=False, device=device, dtype=dtype)
            self.shared_down = nn.Linear(shared_inter, hidden, bias=False, device=device, dtype=dtype)
        for matrices in self.expert_parameters():
            nn.init.normal_(matrices, std=matrices.shape[1]**-0.5)

    def expert_parameters(self) -> Iterator[nn.Parameter]:
        """Those of this rank alone. The others are of every rank."""
        yield from (self.gate_up, self.down)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        require_recorded(self.exchange, "MoELayer", {"tokens": tokens})
        if tokens.dim() == 0 or tokens.shape[-1] != self.exchange.hidden:
            raise InvalidArgument(f"tokens has shape {list(tokens.shape)}; it must be [..., {self.exchange.hidden}]")
        flat, kind = tokens.reshape(-1, self.exchange.hidden), self.compute_dtype or self.gate_up.dtype
        ids, weights = self.router(flat)
        arrived = dispatch(self.exchange, flat, ids, weights, rows=self.rows, dtype=kind)
        sums = combine(self.exchange, self.experts(arrived), arrived, dtype=tokens.dtype)
        if self.shared_gate_up is not None and self.shared_down is not None:
            middle = swiglu(functional.linear(flat.to(kind), self.shared_gate_up.weight.to(kind)))
            sums = sums + functional.linear(middle, self.shared_down.weight.to(kind)).to(sums.dtype)
        return sums.reshape(tokens.shape)

    def experts(self, arrived: Rows) -> torch.Tensor:
        """This rank's experts on the rows that came: [N, hidden]. Rows past the last one are not computed."""
        rows, ends = arrived.values, arrived.row_offsets[1:]
        middle = swiglu(functional.grouped_mm(rows, self.gate_up.to(rows.dtype), offs=ends))
        return functional.grouped_mm(middle, self.down.to(rows.dtype), offs=ends)

    @staticmethod
    def _require_usable(exchange: Exchange, inter: int) -> None:
        if not isinstance(exchange, Exchange):
            raise TypeError(f"exchange is {type(exchange)}; it must be a ferry.torch.Exchange")
        if int32("inter", inter) < 8 or inter % 8 != 0:
            raise InvalidArgument(f"inter is {inter}; it must be a multiple of 8, at least 8")
        if not exchange.format.encodes:
            raise InvalidArgument(f"the exchange's format is {exchange.format.name}, whose bytes nothing encodes; the tokens "
                                  "of a layer are values: make it with a format of ferry.formats.names()")
        if exchange.has_shared_group:
            raise InvalidArgument("the exchange has a fused shared expert; give MoELayer shared_inter in its place")
        if exchange.device.type == "cuda" and exchange.layout.alignment % 8 != 0:
            raise InvalidArgument(f"the exchange has expert_alignment {exchange.layout.alignment}; grouped matmuls of a "
                                  "GPU take groups at multiples of 8: make it with expert_alignment=8")


def swiglu(gate_up: torch.Tensor) -> torch.Tensor:
    """silu(gate) * up; the gates are the first half of the columns."""
    gate, up = gate_up.chunk(2, dim=-1)
    return functional.silu(gate) * up
