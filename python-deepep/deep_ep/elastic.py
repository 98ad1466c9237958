"""ElasticBuffer: DeepEP's second interface, as far as it is about experts. docs/deep-ep.md says what each call does."""

from __future__ import annotations

import contextlib
import functools
from typing import Any, Sequence

import torch

import ferry
from ferry._halves import give_up_half

from ._arguments import (biases, not_empty, refuse_unknown, refused, require_at_least, require_bf16, require_tensor,
                         require_to_fill, require_whole)
from ._config import BUFFER_ALIGNMENT, low_latency_size_hint, rounded_up
from ._ep_handle import EPHandle, handle_of
from ._exchanges import Family, Kind
from ._handles import Routing
from ._normal import expert_list
from ._ranks import Ranks, deadline_or, get_physical_domain_size
from ._runtime import NOT_ABOUT_EXPERTS, WHY_NOT, ElasticRuntime
from ._slots import ALIGNMENTS
from ._streams import Call, Streams, is_capturing, require_event
from .utils.event import EventHandle, EventOverlap

_LEAST_BLOCKS, _SMS, _QPS = 3, 24, 17


class ElasticBuffer:
    """Dispatch and combine of expert parallelism between the ranks of a group.

    group                     a process group of torch.distributed, of any backend; or a ferry.World
    num_max_tokens_per_rank   most tokens of a rank in a dispatch that does not say it
    allow_multiple_reduction  whether combine may add up the expanded rows of a token at the experts' rank, rounded to
                              bf16; else every row travels
    num_gpu_timeout_secs      how long a call waits for a rank, unless FERRY_DEEPEP_DEADLINE says it
    explicitly_destroy        destroy() may be called

    Rows are in the same order in every run, so `deterministic` changes nothing. The other arguments size and tune
    buffers of DeepEP. Collective. Exchanges are made by the first calls that need them, outside of a graph's capture.
    """

    def __init__(self, group: Any, num_bytes: int | None = None, num_cpu_bytes: int = 0,
                 num_max_tokens_per_rank: int = 0, hidden: int = 0, num_topk: int = 0, use_fp8_dispatch: bool = False,
                 deterministic: bool = False, allow_hybrid_mode: bool = True, allow_multiple_reduction: bool = True,
                 prefer_overlap_with_compute: bool = True, sl_idx: int = 3, num_allocated_qps: int = 0,
                 num_cpu_timeout_secs: int = 300, num_gpu_timeout_secs: int = 100, explicitly_destroy: bool = False,
                 **more: Any) -> None:
        refuse_unknown("ElasticBuffer", {"num_cpu_bytes": num_cpu_bytes, **more})  # memory for what is not about experts
        num_max_tokens_per_rank, hidden = num_max_tokens_per_rank or 0, hidden or 0
        require_at_least(0, num_max_tokens_per_rank=num_max_tokens_per_rank, hidden=hidden)
        require_at_least(1, num_gpu_timeout_secs=100 if num_gpu_timeout_secs is None else num_gpu_timeout_secs)
        self._ranks = Ranks(group, None)
        self._ranks.deadline = deadline_or(float(num_gpu_timeout_secs or 100))
        self.group, self.rank_idx, self.num_ranks = group, self._ranks.rank, self._ranks.size
        self.num_max_tokens_per_rank = num_max_tokens_per_rank
        self.num_bytes = num_bytes if num_bytes is not None else low_latency_size_hint(num_max_tokens_per_rank, hidden, 1)
        self.deterministic, self.allow_hybrid_mode = deterministic, allow_hybrid_mode
        self.allow_multiple_reduction = allow_multiple_reduction
        self.prefer_overlap_with_compute = prefer_overlap_with_compute
        self.num_allocated_qps = num_allocated_qps or _QPS
        self.explicitly_destroy = explicitly_destroy
        self.nccl_comm_handle = None  # there is none
        self._streams = Streams(self._ranks.device)
        self._families: dict[tuple[Any, ...], Family] = {}
        self.runtime: ElasticRuntime | None = ElasticRuntime(self._ranks, self._streams, functools.partial(
            _close, self._families))
        self.num_scaleout_ranks, self.num_scaleup_ranks = self.get_logical_domain_size()
        self.num_rdma_ranks, self.num_nvlink_ranks = self.get_physical_domain_size()
        self.scaleout_rank_idx, self.scaleup_rank_idx = 0, self.rank_idx

    def destroy(self) -> None:
        """Gives all memory back. Local: it waits for nobody."""
        if not self.explicitly_destroy:
            raise RuntimeError("destroy() was called; make the buffer with explicitly_destroy=True, or let it go")
        if self.runtime is not None:
            self.runtime.destroy()
            self.runtime = None

    # ---- what callers ask before they begin

    @staticmethod
    def get_buffer_size_hint(group: Any, num_max_tokens_per_rank: int, hidden: int, num_topk: int = 0,
                             use_fp8_dispatch: bool = False, allow_hybrid_mode: bool = True,
                             allow_multiple_reduction: bool = True, **more: Any) -> int:
        """A number of bytes for num_bytes, which allocates nothing."""
        require_at_least(0, num_max_tokens_per_rank=num_max_tokens_per_rank, hidden=hidden)
        _, ranks = get_physical_domain_size(group)
        return rounded_up(low_latency_size_hint(num_max_tokens_per_rank, hidden, ranks), BUFFER_ALIGNMENT)

    @staticmethod
    def capture() -> EventHandle:
        """A point in the current stream."""
        return EventHandle()

    def get_comm_stream(self) -> Any:
        return self._streams.comm()

    def get_physical_domain_size(self) -> tuple[int, int]:
        """(hosts, ranks of a host)"""
        return 1, self.num_ranks

    def get_logical_domain_size(self) -> tuple[int, int]:
        return 1, self.num_ranks

    def get_theoretical_num_sms(self, num_experts: int, num_topk: int, num_scaleout_topk: int = 0, rdma_gbs: float = 0,
                                nvlink_gbs: float = 0, sm_read_gbs: float = 200, sm_write_gbs: float = 50,
                                **more: Any) -> int:
        """How many multiprocessors are enough beside computing. A call with num_sms 0 takes as many as it likes."""
        return _SMS

    def get_theoretical_num_qps(self, num_sms: int) -> int:
        return self.num_allocated_qps

    def barrier(self, use_comm_stream: bool = True, with_cpu_sync: bool = False, sequential: bool = True) -> None:
        """Collective: what all ranks had enqueued is done when it returns. The host waits."""
        self._ranks.require_open()
        assert self.runtime is not None
        self.runtime.barrier(use_comm_stream, with_cpu_sync, sequential)

    def agrs_new_session(self, enabled: bool = True) -> contextlib.AbstractContextManager[None]:
        """Not there. Callers that have it off may say so: `enabled=False` is a context that does nothing."""
        if enabled:
            raise NotImplementedError(f"ElasticBuffer.agrs_new_session: {WHY_NOT}")
        return contextlib.nullcontext()

    # ---- the calls

    def dispatch(self, x: Any, topk_idx: torch.Tensor | None = None, topk_weights: torch.Tensor | None = None,
                 cumulative_local_expert_recv_stats: torch.Tensor | None = None, num_experts: int | None = None,
                 num_max_tokens_per_rank: int | None = None, expert_alignment: int | None = None, num_sms: int = 0,
                 num_qps: int = 0, previous_event: Any = None, previous_event_before_epilogue: Any = None,
                 async_with_compute_stream: bool = False, allocate_on_comm_stream: bool = False, handle: Any = None,
                 do_handle_copy: bool = True, do_cpu_sync: bool | None = None, do_expand: bool = False,
                 do_zero_padding: bool = False, use_tma_aligned_col_major_sf: bool = False, **more: Any
                 ) -> tuple[Any, torch.Tensor | None, torch.Tensor | None, EPHandle, EventOverlap]:
        """Sends tokens to the ranks of their experts.

        Returns (recv_x, recv_topk_idx, recv_topk_weights, handle, event). A row for each token that names an expert of
        this rank, by source rank and token, with local ids [rows, K], -1 for experts of other ranks. With do_expand a
        row for each of its experts here, by expert, each beginning at a multiple of expert_alignment; ids are None,
        weights [rows]. do_cpu_sync (the default without a handle): the host waits, and there are as many rows as came;
        else there is room for any dispatch. With `handle` tokens go where those of its dispatch went, with topk_weights
        of their own if given.
        """
        refuse_unknown("dispatch", more)
        old = None if handle is None else handle_of(handle)
        if old is None and (topk_idx is None or num_experts is None):
            raise ValueError("topk_idx or num_experts is None without a handle; both say where tokens go")
        if old is not None and (topk_idx is not None or do_cpu_sync or old.do_expand != do_expand):
            raise ValueError(f"topk_idx, do_cpu_sync or another do_expand than {old.do_expand} is given with a handle; the "
                             "handle has them, and its sizes")
        if old is None:
            require_tensor("topk_idx", topk_idx, "[tokens, K]")
        else:
            old.require_same(num_experts=num_experts, num_max_tokens_per_rank=num_max_tokens_per_rank,
                             expert_alignment=expert_alignment)
        call = self._call(previous_event, previous_event_before_epilogue, async_with_compute_stream,
                          allocate_on_comm_stream)
        if do_zero_padding and not do_expand:
            raise ValueError("do_zero_padding is given without do_expand; only expanded rows have padding")
        given = x if isinstance(x, (tuple, list)) else (x,)
        alignment = 1 if expert_alignment is None else expert_alignment
        with call:
            kind = Kind(x)  # it may copy scales, on the stream of the call
            if old is not None:
                ids, family = old.topk_idx, old.routing.family
            else:
                assert topk_idx is not None and num_experts is not None
                ids = topk_idx
                family = self._family(num_experts, int(ids.shape[1]), num_max_tokens_per_rank, alignment, do_expand)
            extra = _counted(family, not_empty(cumulative_local_expert_recv_stats))
            step = _Dispatch(call, family, kind, ids, topk_weights, do_expand, use_tma_aligned_col_major_sf,
                             self._most_blocks(num_sms), extra, do_zero_padding)
            if old is not None:
                step.replay(old)
                left = old
            else:
                counts = step.run(do_cpu_sync is None or do_cpu_sync)
                kept = ids.clone() if do_handle_copy else ids
                left = EPHandle(step.routing, step.outputs, do_expand=do_expand, expert_alignment=alignment,
                                num_sms=num_sms or _SMS, max_blocks=self._most_blocks(num_sms), topk_idx=kept,
                                numbers=None if counts is None else expert_list(counts, alignment))
            if left.slots is not None:
                step.lay_out(left)
            replayed = () if old is None else (old.routing.data, old.topk_idx)
            event = call.event(*given, kind.tokens, kind.scales, topk_idx, topk_weights, *replayed, *extra.values())
        return step.found, step.outputs.get("row_topk_ids"), step.weights, left, event

    def combine(self, x: torch.Tensor, handle: Any, topk_weights: torch.Tensor | None = None,
                bias: torch.Tensor | Sequence[torch.Tensor | None] | None = None, num_sms: int = 0, num_qps: int = 0,
                previous_event: Any = None, previous_event_before_epilogue: Any = None,
                async_with_compute_stream: bool = False, allocate_on_comm_stream: bool = False, **more: Any
                ) -> tuple[torch.Tensor, torch.Tensor | None, EventOverlap]:
        """Adds up, for each token that this rank dispatched, the rows that its ranks have for it. Weights nothing.

        x             [rows, hidden], in the rows of the dispatch
        topk_weights  f32 [rows, K], of expanded rows [rows]: come home to their token and k
        bias          one or two [n, hidden], added first

        Returns (sums, topk_weights [n, K] or None, event).
        """
        refuse_unknown("combine", more)
        old = handle_of(handle)
        given = biases(bias)
        call = self._call(previous_event, previous_event_before_epilogue, async_with_compute_stream,
                          allocate_on_comm_stream)
        with call:
            blocks = self._most_blocks(num_sms) if num_sms else old.max_blocks
            sums, weights = self._combine(call, x, old, topk_weights, given, blocks)
            event = call.event(x, topk_weights, *given, old.routing.data, old.row_topk_ids)
        return sums, weights, event

    # ---- what the calls share

    def _call(self, previous: Any, before_epilogue: Any, is_async: bool, allocates_there: bool) -> Call:
        """The second event is waited for where the first is: that is early enough."""
        self._ranks.require_open()
        require_event("previous_event_before_epilogue", before_epilogue)
        if require_event("previous_event", previous) is not None and not allocates_there:
            raise ValueError("previous_event is given; it needs allocate_on_comm_stream: new memory of the current stream "
                             "may be in use there behind that event")
        if before_epilogue is not None and self._ranks.is_gpu:
            in_comm = previous is not None
            with torch.cuda.stream(self._streams.comm()) if in_comm else contextlib.nullcontext():
                before_epilogue.current_stream_wait()
        return self._streams.call(previous, is_async, allocates_there)

    def _most_blocks(self, num_sms: int) -> int:
        require_at_least(0, num_sms=num_sms)
        return max(_LEAST_BLOCKS, num_sms) if num_sms else 0

    def _family(self, experts: int, top_k: int, max_tokens: int | None, alignment: int, do_expand: bool) -> Family:
        tokens = max_tokens or self.num_max_tokens_per_rank
        require_whole(num_max_tokens_per_rank=tokens)
        if tokens <= 0:
            raise ValueError(f"num_max_tokens_per_rank is {tokens}; give it to the buffer or to the dispatch")
        require_at_least(1, num_experts=experts, expert_alignment=alignment)
        order = "by_expert" if do_expand else "by_source"
        if not do_expand or alignment not in ALIGNMENTS:
            alignment = 1  # where rows lie does not depend on it, or they are laid out anew
        key = (experts, top_k, tokens, alignment, order)
        if key not in self._families:
            # Exact combines, of an exchange whose dispatches take weights.
            options: dict[str, Any] = {"reduction": "either"} if self._sends_every_row(do_expand) else {}
            self._families[key] = Family(self._ranks, experts, top_k, tokens, alignment=alignment, row_orders=(order,),
                                         short_handles=self._ranks.short_handles, **options)
        return self._families[key]

    def _sends_every_row(self, do_expand: bool) -> bool:
        """Whether combines of such rows add nothing up at the experts' ranks."""
        return do_expand and not self.allow_multiple_reduction

    def _combine(self, call: Call, x: torch.Tensor, old: EPHandle, topk_weights: torch.Tensor | None,
                 bias: list[torch.Tensor], max_blocks: int) -> tuple[torch.Tensor, torch.Tensor | None]:
        routing = old.routing
        require_tensor("x", x, "[rows, hidden]")
        require_bf16("x", x)
        if x.shape[0] < old.least_rows:
            raise ValueError(f"x has shape {list(x.shape)}; the dispatch of this handle has {old.least_rows} rows")
        family, hidden = routing.family, int(x.shape[1])
        sums = call.empty((routing.tokens, hidden), x.dtype)
        if old.slots is not None:
            x = old.slots.close_together(x.detach(), routing.rows)
        options: dict[str, Any] = {}
        given: dict[str, Any] = {"rows": x.detach(), "handle": routing.data, "bias": bias or None, "out": sums,
                                 "max_blocks": max_blocks}
        if self._sends_every_row(old.do_expand):
            given["reduction"] = "exact"
        else:
            given.update(sum_order="by_last_k", apply_weights=False)
        weights = None
        if topk_weights is not None:
            if not self._ranks.capabilities["returned_weights"]:
                raise NotImplementedError("combine(topk_weights=...): this build of Ferry takes no weights home on "
                                          f"{self._ranks.device}")
            options["returns_weights"] = True
            weights = call.empty((routing.tokens, family.top_k), torch.float32)
            old.require_weights(topk_weights)
            plain = topk_weights.detach().to(torch.float32)
            if old.slots is not None:
                plain = old.slots.close_together(plain, routing.rows)
            if old.row_topk_ids is not None:  # only what the expert's own rank says counts
                rows = old.row_topk_ids.shape[0]
                plain = torch.where(old.row_topk_ids >= 0, plain[:rows], 0.0)
            given.update(row_topk_weights=plain.contiguous(), topk_weights_out=weights)
        family.exchange(hidden, **options).combine(**given)
        return sums, weights


class _Dispatch:
    """One dispatch: its outputs, and the calls that fill them."""

    def __init__(self, call: Call, family: Family, kind: Kind, ids: torch.Tensor, weights: torch.Tensor | None,
                 do_expand: bool, side_by_side: bool, max_blocks: int, extra: dict[str, torch.Tensor],
                 zero_padding: bool) -> None:
        self._call, self._family, self._kind = call, family, kind
        self._side_by_side, self._do_expand = side_by_side, do_expand
        self._extra = extra
        self._has_weights = weights is not None
        self._exchange = family.exchange(kind.hidden)
        self._order = "by_expert" if do_expand else "by_source"
        self._ids: dict[str, Any] = {"topk_ids": ids, "topk_weights": weights}
        self._more: dict[str, Any] = {"row_order": self._order, "max_blocks": max_blocks}
        self._zero_padding = zero_padding
        self.found: Any = None
        self.weights: torch.Tensor | None = None
        self.outputs: dict[str, torch.Tensor] = {}

    def run(self, is_exact: bool) -> ferry.RowCounts | None:
        """Leaves a handle. Returns what came, where the host waits."""
        family, kind = self._family, self._kind
        if is_exact:
            if is_capturing(family.ranks.device):
                raise RuntimeError("dispatch waits for the number of rows, which a graph cannot; give do_cpu_sync=False")
            self._exchange.dispatch_async(**kind.inputs(), **self._ids, **self._more)
            try:
                return self._receive(self._exchange.wait_for_counts())
            except BaseException as error:
                give_up_half(self._exchange, error)
                raise
        rows = rounded_up(family.layout.least_rows(self._order, 0), family.alignment)
        self._make_outputs(rows, family.bytes_of_handle(kind.num_tokens, None))
        self._exchange.dispatch(**kind.inputs(), **self._ids, **self._more, outputs={**self.outputs, **self._extra},
                                zero_padding=self._zero_padding)
        self._leave(rows)
        return None

    def _receive(self, counts: ferry.RowCounts) -> ferry.RowCounts:
        self._make_outputs(counts.rows, self._family.bytes_of_handle(self._kind.num_tokens, counts))
        self._exchange.dispatch_wait({**self.outputs, **self._extra}, zero_padding=self._zero_padding,
                                     max_blocks=self._more["max_blocks"])
        self._leave(counts.rows)
        return counts

    def _leave(self, rows: int) -> None:
        self.routing = Routing(self._family, self.outputs["handle"], self._kind.num_tokens, rows, self._kind.hidden)

    def replay(self, old: EPHandle) -> None:
        """Fills as many rows as the handle's dispatch had. New weights travel with its ids: the rows are the same."""
        self._make_outputs(old.routing.rows)
        where: dict[str, Any] = self._ids if self._has_weights else {"handle": old.routing.data}
        if self._family.ranks.capabilities["overflow"]:
            where = {**where, "overflow": "expected"}
        self._exchange.dispatch(**self._kind.inputs(), **where, **self._more, outputs={**self.outputs, **self._extra},
                                zero_padding=self._zero_padding)

    def lay_out(self, left: EPHandle) -> None:
        """Rows where the handle says that they are."""
        assert left.slots is not None
        rows = left.num_expanded_tokens
        self.found, wanted = self._kind.outputs(self._call, rows, self._side_by_side)
        for name, to in wanted.items():
            left.slots.lay_out(self.outputs[name], to, self._zero_padding or name == "row_scales")
        if self.weights is not None:
            close, self.weights = self.weights, self._call.empty((rows,), torch.float32)
            left.slots.lay_out(close, self.weights, clears=True)

    def _make_outputs(self, rows: int, handle_bytes: int = 0) -> None:
        """With handle_bytes the dispatch leaves a handle."""
        call, family = self._call, self._family
        top_k, ranks = family.top_k, family.ranks.size
        self.found, self.outputs = self._kind.outputs(call, rows, self._side_by_side)
        outputs = self.outputs
        outputs["source_offsets"] = call.empty((ranks + 1,), torch.int32).view(torch.uint32)
        outputs["src_info"] = call.empty((rows, 2), torch.int32)
        outputs["counts"] = call.empty((family.local_experts,), torch.int32)
        if handle_bytes:
            outputs["handle"] = call.empty((handle_bytes,), torch.uint8)
        if self._do_expand:
            outputs["row_offsets"] = call.empty((family.local_experts + 1,), torch.int32).view(torch.uint32)
            outputs["expert_ids"] = call.empty((family.local_experts,), torch.int32)
            if handle_bytes:
                most = min(rows, ranks * family.max_tokens)
                outputs["messages"] = call.empty((most, 2 + top_k), torch.int32)
        else:
            outputs["row_topk_ids"] = call.empty((rows, top_k), self._ids["topk_ids"].dtype)
        if self._has_weights:
            name, shape = ("row_weights", (rows,)) if self._do_expand else ("row_topk_weights", (rows, top_k))
            self.weights = outputs[name] = call.empty(shape, torch.float32)


def _counted(family: Family, stats: torch.Tensor | None) -> dict[str, torch.Tensor]:
    """What a dispatch adds its counts to, as Ferry names it."""
    if stats is None:
        return {}
    require_to_fill("cumulative_local_expert_recv_stats", stats, torch.int32, [family.local_experts], family.ranks.device)
    return {"cumulative_counts": stats}


def _close(families: dict[tuple[Any, ...], Family]) -> None:
    for family in families.values():
        family.close()
    families.clear()


for _name in (*NOT_ABOUT_EXPERTS, "get_engram_storage_size_hint", "get_pp_buffer_size_hint",
              "get_agrs_num_max_session_bytes", "get_agrs_buffer_size_hint"):
    setattr(ElasticBuffer, _name, staticmethod(refused(f"ElasticBuffer.{_name}", WHY_NOT)))
