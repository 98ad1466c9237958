"""What a backward pass adds to an exchange: gradients go by the handle of the forward pass."""

from __future__ import annotations

from typing import Any

import torch

from .. import _exchange as plain
from .._arguments import several
from .._arrivals import Handle
from .._errors import InvalidArgument, Unsupported
from .._world import World
from ._arrivals import TensorExchange

_OF_TOKENS = ("format", "more_formats", "tiled_scales", "dynamic_scales", "late_weights", "returns_weights",
              "message_copies")


class Gradients:
    """Two calls: the transpose of combine, which is a replay of the dispatch, and the transpose of dispatch.

    Gradients travel in the format `name`: through `forward` where that is its format, else through an exchange of their
    own. The gradients of router weights go home as returned weights; where a world cannot do it, as columns of a third
    exchange, one for each k.
    """

    def __init__(self, world: World, forward: plain.Exchange, name: str, options: dict[str, Any]) -> None:
        self._top_k = forward.shape.top_k
        others = {key: value for key, value in options.items() if key not in _OF_TOKENS}
        others["expert_alignment"] = forward.layout.alignment  # handles are of one alignment
        self.exchange = forward
        if forward._format.name != name:
            self.exchange = TensorExchange(world, **others, format=name, returns_weights=returns_weights(world))
        self._values = None
        if not returns_weights(world):
            others |= {"hidden": (self._top_k + 31) // 32 * 32, "result_format": "f32"}
            self._values = TensorExchange(world, **others)

    def all(self) -> list[plain.Exchange]:
        return [self.exchange] if self._values is None else [self.exchange, self._values]

    def send_home(self, rows: torch.Tensor, values: torch.Tensor | None, k_of_row: torch.Tensor, handle: Handle,
                  sums: torch.Tensor, stream: dict[str, Any]) -> torch.Tensor | None:
        """Adds the gradients of rows up at their tokens' home, in `sums`, with those of router weights: f32 [n, K].

        values    by_expert and padded f32 [N]; by_source f32 [N, K]; None: none
        k_of_row  int32 [N]: of a row's token; not read where values have two axes
        """
        weights = None
        more: dict[str, Any] = {"handle": handle, "apply_weights": False, **stream}
        if values is not None:
            weights = torch.empty((handle.tokens, self._top_k), dtype=torch.float32, device=rows.device)
        if values is None or self._values is not None:
            self.exchange.combine(rows, out=sums, **more)
        else:
            self.exchange.combine(rows, out=sums, row_topk_weights=values, topk_weights_out=weights, **more)
        if values is None or self._values is None:
            return weights
        columns = torch.zeros((rows.shape[0], self._values.shape.hidden), dtype=torch.float32, device=rows.device)
        if values.dim() == 2:
            columns[:, :self._top_k] = values
        else:
            columns.scatter_(1, k_of_row.clamp(0, self._top_k - 1).to(torch.int64)[:, None], values[:, None])
            columns.mul_((k_of_row < self._top_k)[:, None])  # rows of a fused shared expert have k = K
        found: torch.Tensor = self._values.combine(columns, **more)
        return found[:, :self._top_k].contiguous()


def returns_weights(world: World) -> bool:
    return bool(world.capabilities()["returned_weights"])


_NAME_BYTES = 64  # of a format


def require_same(world: World, name: str | None, options: dict[str, Any]) -> None:
    """Refuses ranks that differ in `backward`, which makes other exchanges, or none. Collective."""
    mask = set(several("mask", options.get("mask", ()), "numbers of ranks"))
    mine = str(name).encode()[:_NAME_BYTES].ljust(_NAME_BYTES, b"\0")
    found = world.all_gather(mine, mask=mask, deadline=options.get("set_up_deadline"))
    for rank in set(range(world.size)) - mask:
        if found[rank] != mine:
            theirs = found[rank].rstrip(b"\0").decode("utf-8", "replace")
            raise InvalidArgument(f"rank {world.rank}: the ranks of an exchange differ: backward is {name} on rank "
                                  f"{world.rank} and {theirs} on rank {rank}")


def require_trainable(world: World, options: dict[str, Any]) -> None:
    """Refuses options whose exchange has no transpose by handles."""
    if (reduction := options.get("reduction", "by_rank")) != "by_rank":
        raise InvalidArgument(f"backward with reduction {reduction}: where combine is exact, weights stay at the tokens' "
                              "home, and the gradients of rows are made elsewhere; use by_rank")
    if options.get("memory_of") is not None:
        raise InvalidArgument("backward with memory_of: the memory may be another exchange's when gradients travel; make "
                              "the exchange that trains first, and the other one in its memory")
    if options.get("skip_a2a"):
        raise InvalidArgument("backward with skip_a2a: every rank has all tokens and gets partial sums, so what is "
                              "wanted is an all-reduce of gradients; make the exchange without backward")
    if not world.capabilities()["handles"]:
        raise Unsupported(f"backward needs handles, which worlds of {world.kind} do not have")
