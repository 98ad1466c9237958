"""torchtitan's token dispatcher on Ferry. docs/engines.md says how to turn it on.

torchtitan imports this module where --override.imports names use_ferry; it needs torchtitan.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from .._errors import InvalidArgument
from ..torch import Exchange, Rows, combine, dispatch
from ._interface import require
from ._shared import exchange_of

_titan = require("torchtitan")


class FerryTokenDispatcher(_titan.BaseEPTokenDispatcher):  # type: ignore[misc, name-defined]
    """Rows by expert, and combine times the router's scores, which get their gradient. Without expert parallelism it
    does what LocalTokenDispatcher does."""

    @dataclasses.dataclass(kw_only=True, slots=True)
    class Config(_titan.BaseEPTokenDispatcher.Config):  # type: ignore[misc, name-defined]
        """hidden_dim: columns of a token. num_max_tokens_per_rank: the most tokens that a rank ever has.

        rows     of a compiled dispatch: room; None: for any. Eager ones take what comes
        options  of ferry.torch.Exchange: format, backward, expert_alignment, result_format, ...
        """

        hidden_dim: int
        num_max_tokens_per_rank: int
        rows: int | None = None
        options: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._config = config
        self._exchange: Exchange | None = None

    def init_buffer(self) -> None:
        """Takes the exchange of this shape and these ranks, or makes it: collective over the mesh."""
        config = self._config
        self._exchange = None if self.ep_mesh is None else exchange_of(
            self.ep_mesh.get_group(), self.ep_mesh.device_type, experts=config.num_experts, top_k=config.top_k,
            max_tokens=config.num_max_tokens_per_rank, hidden=config.hidden_dim, **config.options)

    def dispatch(self, x_TD: torch.Tensor, topk_scores_TK: torch.Tensor, topk_expert_ids_TK: torch.Tensor,
                 num_local_tokens_per_expert_E: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, Any]:
        """(rows by expert, rows of each local expert with its padding, what combine is to be given)"""
        if self._exchange is None:
            local: tuple[torch.Tensor, torch.Tensor, Any] = _titan.LocalTokenDispatcher.dispatch(
                self, x_TD, topk_scores_TK, topk_expert_ids_TK, num_local_tokens_per_expert_E)
            return local
        room = self._config.rows if torch.compiler.is_compiling() else None
        arrived = dispatch(self._exchange, x_TD, topk_expert_ids_TK, topk_scores_TK, rows=room)
        return arrived.values, arrived.row_offsets.diff(), arrived

    def combine(self, routed_output_RD: torch.Tensor, metadata: Any, x_TD: torch.Tensor) -> torch.Tensor:
        """[T, D]: for each token the sum of its rows times their scores."""
        if self._exchange is None:
            local: torch.Tensor = _titan.LocalTokenDispatcher.combine(self, routed_output_RD, metadata, x_TD)
            return local
        arrived: Rows = metadata
        return combine(self._exchange, routed_output_RD, arrived, dtype=x_TD.dtype)


@_titan.override(target=_titan.LocalTokenDispatcher.Config, description="dispatch and combine by Ferry")  # type: ignore[untyped-decorator]
def use_ferry(cfg: Any, *, hidden: int | None = None, max_tokens: int | None = None, rows: int | None = None,
              **options: Any) -> FerryTokenDispatcher.Config:
    """The replacement for any token dispatcher's config.

    hidden, max_tokens  where cfg does not know them: those of the backend "standard" do not
    rows, options       as of FerryTokenDispatcher.Config; backward is "bf16" if not said
    """
    for name in ("non_blocking_capacity_factor",):
        if getattr(cfg, name, None) is not None:
            raise NotImplementedError(f"{type(cfg).__qualname__}.{name} is {getattr(cfg, name)}: Ferry drops no tokens; "
                                      "leave it None, and give use_ferry rows= for a compiled model")
    sizes: dict[str, Any] = {"hidden": hidden or getattr(cfg, "hidden_dim", None),
             "max_tokens": max_tokens or getattr(cfg, "num_max_tokens_per_rank", None)}
    missing = [name for name, size in sizes.items() if size is None]
    if missing:
        raise InvalidArgument(f"{type(cfg).__qualname__} does not say {' and '.join(missing)}; give them: --override.imports "
                              "'ferry.adapters.torchtitan.use_ferry={\"hidden\": columns of a token, \"max_tokens\": tokens "
                              "of a rank}'")
    if getattr(cfg, "pad_multiple", None) is not None:  # groups of quantized matmuls
        options.setdefault("expert_alignment", cfg.pad_multiple)
    options.setdefault("backward", "bf16")
    return FerryTokenDispatcher.Config(num_experts=cfg.num_experts, top_k=cfg.top_k, hidden_dim=sizes["hidden"],
                                       num_max_tokens_per_rank=sizes["max_tokens"], rows=rows, options=options)
