"""The normal mode: one row for each token and rank, ordered by source rank and token."""

from __future__ import annotations

import itertools
from typing import Any

import torch

import ferry
from ferry._halves import MOST_FINDINGS, give_up_half

from ._arguments import require_bf16, require_tensor
from ._config import rounded_up
from ._exchanges import Family, Kind, is_refused_for_tokens, lacks_room, with_room
from ._handles import NormalHandle, Routing, routing_of
from ._ranks import Ranks
from ._streams import Call, is_capturing

_ORDERS = ("by_source",)
_MOST_TOP_K = 32


class Choice:
    """Where the tokens of a dispatch go: by ids, or by the ranks alone."""

    def __init__(self, ranks: Ranks, topk_idx: torch.Tensor | None, topk_weights: torch.Tensor | None,
                 is_token_in_rank: torch.Tensor | None, expert_counts: torch.Tensor | None) -> None:
        if expert_counts is None:
            raise ValueError("num_tokens_per_expert is None; get_dispatch_layout returns it")
        require_tensor("num_tokens_per_expert", expert_counts, "[experts]")
        self.experts = int(expert_counts.shape[0])
        self.ids, self.weights = topk_idx, topk_weights
        if topk_idx is not None:
            require_tensor("topk_idx", topk_idx, "[tokens, K]")
            self.top_k = int(topk_idx.shape[1])
            self.inputs: dict[str, Any] = {"topk_ids": topk_idx, "topk_weights": topk_weights}
            return
        if is_token_in_rank is None:
            raise ValueError("neither topk_idx nor is_token_in_rank is given; one of them says where tokens go")
        if topk_weights is not None:
            raise ValueError("topk_weights is given without topk_idx; weights are those of ids")
        require_tensor("is_token_in_rank", is_token_in_rank, "[tokens, ranks]")
        if is_token_in_rank.dtype != torch.bool or is_token_in_rank.shape[1] != ranks.size:
            raise ValueError(f"is_token_in_rank is {is_token_in_rank.dtype} {list(is_token_in_rank.shape)}; it must be "
                             f"torch.bool [tokens, {ranks.size}]")
        self.top_k = min(ranks.size, _MOST_TOP_K)
        self.inputs = {"in_rank": is_token_in_rank.contiguous().view(torch.uint8),
                       "expert_counts": expert_counts.to(torch.int32).contiguous()}


def _wait_for_counts(exchange: ferry.Exchange, findings: list[ferry.InvalidArgument]) -> ferry.RowCounts | None:
    """None: all ranks refuse the dispatch, as one has too many tokens. `findings` gets what a GPU says first, one at a time:
    what its kernels found out about this dispatch or an earlier call."""
    while True:
        try:
            return exchange.wait_for_counts()
        except ferry.InvalidArgument as error:
            if is_refused_for_tokens(error):
                return None
            if len(findings) == MOST_FINDINGS:
                raise
            findings.append(error)


class Normal:
    """Exchanges of the normal mode, and its calls."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._families: dict[tuple[int, int], Family] = {}
        self._fixed: dict[tuple[int, int], list[Family]] = {}  # of dispatch_worst, the newest last: graphs keep theirs

    def close(self) -> None:
        for family in (*self._families.values(), *itertools.chain(*self._fixed.values())):
            family.close()
        self._families.clear()
        self._fixed.clear()

    def dispatch(self, call: Call, kind: Kind, choice: Choice, is_token_in_rank: torch.Tensor | None, max_blocks: int
                 ) -> tuple[Any, Any, Any, ferry.RowCounts, NormalHandle]:
        """Outputs hold what comes, so the host waits."""
        if is_capturing(self._ranks.device):
            raise RuntimeError("dispatch waits for the number of rows, which a graph cannot; give num_worst_tokens")
        findings: list[ferry.InvalidArgument] = []
        while True:
            family = self._family(choice, kind.num_tokens)
            exchange = family.exchange(kind.hidden)
            exchange.dispatch_async(**kind.inputs(), **choice.inputs, row_order="by_source", max_blocks=max_blocks)
            try:
                counts = _wait_for_counts(exchange, findings)
                if counts is not None and findings:
                    raise findings[0]
            except BaseException as error:
                give_up_half(exchange, error)
                raise
            if counts is not None:
                break
            self._grow(choice, kind.num_tokens)  # all ranks do, and dispatch again: so a finding is raised behind that
        try:
            found, outputs = self._outputs(call, family, kind, choice, counts.rows, counts)
            exchange.dispatch_wait(outputs, max_blocks=max_blocks)
        except BaseException as error:
            give_up_half(exchange, error)
            raise
        handle = self._handle(family, kind, outputs, is_token_in_rank, counts.rows)
        return found, outputs.get("row_topk_ids"), outputs.get("row_topk_weights"), counts, handle

    def dispatch_worst(self, call: Call, kind: Kind, choice: Choice, worst: int, is_token_in_rank: torch.Tensor | None,
                       max_blocks: int) -> tuple[Any, Any, Any, NormalHandle]:
        """Outputs hold `worst` rows, and the host waits for nothing."""
        wanted = -(-worst // self._ranks.size)
        while True:
            family = self._fixed_family(choice, kind, wanted)
            most = family.layout.least_rows("by_source", 0)
            # Where that is all that may come, or nearly so, no row can lack room; GPUs are slower where rows may.
            is_less = family.max_tokens > wanted and self._may_lack_room
            found, outputs = self._outputs(call, family, kind, choice, worst if is_less else most)
            more: dict[str, Any] = {"overflow": "reported"} if is_less else {}
            exchange = family.exchange(kind.hidden)
            try:
                exchange.dispatch(**kind.inputs(), **choice.inputs, row_order="by_source", outputs=outputs,
                                  max_blocks=max_blocks, **more)
                break
            except ferry.InvalidArgument as error:
                # A GPU's host learns in a later call that all ranks refused a dispatch: then its rows are lost.
                if self._ranks.is_gpu or not is_refused_for_tokens(error):
                    raise
                self._fix(choice, kind.num_tokens)
        if is_less:
            self._tell_lacking(exchange, worst)
        handle = self._handle(family, kind, outputs, is_token_in_rank, worst)
        cut = tuple(one[:worst] for one in found) if kind.has_scales else found[:worst]
        ids, weights = (outputs.get(name) for name in ("row_topk_ids", "row_topk_weights"))
        return cut, None if ids is None else ids[:worst], None if weights is None else weights[:worst], handle

    def replay(self, call: Call, kind: Kind, handle: Any, max_blocks: int) -> Any:
        """The rows of other tokens, where those of the handle's dispatch went."""
        routing = routing_of(handle, NormalHandle)
        exchange = routing.family.exchange(kind.hidden)
        found, outputs = kind.outputs(call, routing.rows)
        outputs["source_offsets"] = self._offsets()
        # A GPU would want room for the worst case; the handle's dispatch has said how much there is.
        room: dict[str, Any] = {"overflow": "expected"} if self._ranks.capabilities["overflow"] else {}
        exchange.dispatch(**kind.inputs(), handle=routing.data, row_order="by_source", outputs=outputs,
                          max_blocks=max_blocks, **room)
        return found

    def combine(self, call: Call, x: torch.Tensor, handle: Any, row_weights: torch.Tensor | None,
                bias: list[torch.Tensor], max_blocks: int) -> tuple[torch.Tensor, torch.Tensor | None]:
        routing: Routing = routing_of(handle, NormalHandle)
        require_tensor("x", x, "[rows, hidden]")
        require_bf16("x", x)
        if x.shape[0] < routing.rows:
            raise ValueError(f"x has shape {list(x.shape)}; the dispatch of this handle has {routing.rows} rows")
        family, hidden = routing.family, int(x.shape[1])
        sums = call.empty((routing.tokens, hidden), x.dtype)
        given: dict[str, Any] = {"rows": x.detach(), "handle": routing.data, "bias": bias or None}
        if row_weights is None:
            family.exchange(hidden).combine(**given, out=sums, max_blocks=max_blocks)
            return sums, None
        weights = self._home_weights(call, routing, row_weights)
        columns = int(row_weights.shape[1])
        exchange = family.exchange(hidden, returns_weights=True)
        exchange.combine(**given, row_topk_weights=_widened(row_weights, family.top_k), out=sums,
                         topk_weights_out=weights, max_blocks=max_blocks)
        return sums, weights[:, :columns]

    # ---- what the calls share

    def _home_weights(self, call: Call, routing: Routing, row_weights: torch.Tensor) -> torch.Tensor:
        if not self._ranks.capabilities["returned_weights"]:
            raise NotImplementedError("combine(topk_weights=...): this build of Ferry takes no weights home on "
                                      f"{self._ranks.device}")
        require_tensor("topk_weights", row_weights, "[rows, K]")
        if row_weights.shape[0] < routing.rows or row_weights.shape[1] > routing.family.top_k:
            raise ValueError(f"topk_weights has shape {list(row_weights.shape)}; the dispatch of this handle has "
                             f"{routing.rows} rows of {routing.family.top_k} experts")
        return call.empty((routing.tokens, routing.family.top_k), torch.float32)

    def _family(self, choice: Choice, tokens: int) -> Family:
        """The newest of this shape. The first has room for what the ranks have in this call."""
        key = (choice.experts, choice.top_k)
        if key not in self._families:
            self._grow(choice, max(tokens, self._ranks.least_tokens))
        return self._families[key]

    def _grow(self, choice: Choice, tokens: int) -> None:
        """Collective. Handles keep the family that they are of."""
        self._families[choice.experts, choice.top_k] = Family(self._ranks, choice.experts, choice.top_k,
                                                              with_room(self._ranks.most(tokens)), row_orders=_ORDERS,
                                                              short_handles=self._ranks.short_handles)

    def _fixed_family(self, choice: Choice, kind: Kind, wanted: int) -> Family:
        """For dispatches of which a rank gets rows for so many tokens of each rank: the newest of this shape. All ranks
        ask for more than it has in the same call, or none does."""
        made = self._fixed.get((choice.experts, choice.top_k))
        if made is None or made[-1].max_tokens < wanted:
            if is_capturing(self._ranks.device):
                raise RuntimeError(f"this graph needs an exchange of {wanted} tokens of each rank, which is made by the "
                                   "first such call; make that call once before the capture")
            self._fix(choice, max(wanted, kind.num_tokens))
        return self._fixed[choice.experts, choice.top_k][-1]

    def _fix(self, choice: Choice, tokens: int) -> None:
        """Collective: a family with room for what any rank asks for."""
        made = self._fixed.setdefault((choice.experts, choice.top_k), [])
        made.append(Family(self._ranks, choice.experts, choice.top_k, max(1, self._ranks.most(tokens)),
                           row_orders=_ORDERS))

    @property
    def _may_lack_room(self) -> bool:
        """Whether a dispatch whose rows may lack room leaves a handle."""
        can = self._ranks.capabilities
        return bool(can["overflow"] and can["overflow_handles"])

    def _tell_lacking(self, exchange: ferry.Exchange, worst: int) -> None:
        """Raises where rows of this dispatch had no room; on a GPU those of earlier ones, which it has done."""
        try:
            exchange.check()
        except ferry.InvalidArgument as error:
            if not lacks_room(error):
                raise
            raise ferry.InvalidArgument(f"num_worst_tokens is {worst}, and more rows came to this rank: {error}") from error

    def _offsets(self) -> torch.Tensor:
        return torch.empty(self._ranks.size + 1, dtype=torch.int32, device=self._ranks.device).view(torch.uint32)

    def _outputs(self, call: Call, family: Family, kind: Kind, choice: Choice, rows: int,
                 counts: ferry.RowCounts | None = None) -> tuple[Any, dict[str, torch.Tensor]]:
        found, outputs = kind.outputs(call, rows)
        outputs["source_offsets"] = call.empty((self._ranks.size + 1,), torch.int32).view(torch.uint32)
        outputs["src_info"] = call.empty((rows, 2), torch.int32)
        outputs["handle"] = call.empty((family.bytes_of_handle(kind.num_tokens, counts),), torch.uint8)
        if choice.ids is not None:
            outputs["row_topk_ids"] = call.empty((rows, choice.top_k), torch.int64)
            if choice.weights is not None:
                outputs["row_topk_weights"] = call.empty((rows, choice.top_k), torch.float32)
        return found, outputs

    def _handle(self, family: Family, kind: Kind, outputs: dict[str, torch.Tensor],
                is_token_in_rank: torch.Tensor | None, rows: int) -> NormalHandle:
        routing = Routing(family, outputs["handle"], kind.num_tokens, rows, kind.hidden)
        return NormalHandle.of(routing, outputs["source_offsets"].view(torch.int32), outputs["src_info"],
                               is_token_in_rank, rows)


def expert_list(counts: ferry.RowCounts, alignment: int) -> list[int]:
    """Tokens of each of this rank's experts, each rounded up."""
    return [rounded_up(int(number), max(1, alignment)) for number in counts.by_expert]


def _widened(weights: torch.Tensor, columns: int) -> torch.Tensor:
    """As many columns as the exchange has: those of a dispatch without ids are the ranks."""
    plain = weights.detach().to(torch.float32)
    if plain.shape[1] < columns:
        plain = torch.nn.functional.pad(plain, (0, columns - plain.shape[1]))
    return plain.contiguous()
