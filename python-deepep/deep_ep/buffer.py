"""Buffer: DeepEP's first interface. docs/deep-ep.md says what each call does here."""

from __future__ import annotations

import functools
from typing import Any, Callable, Sequence

import torch

import ferry

from ._arguments import (biases, not_empty, refuse_unknown, require_at_least, require_ids, require_tensor,
                         require_whole, told)
from ._config import Config, rdma_size_hint
from ._exchanges import Kind
from ._handles import LowLatencyHandle, routing_of
from ._low_latency import LowLatency
from ._normal import Choice, Normal, expert_list
from ._ranks import Ranks
from ._runtime import Runtime
from ._streams import Call, Streams
from .utils.event import EventHandle, EventOverlap

Tokens = Any  # a tensor, or a pair of FP8 codes and their scales
_LEAST_BLOCKS = 3


class Buffer:
    """Dispatch and combine of expert parallelism between the ranks of a group.

    group                a process group of torch.distributed, of any backend; or a ferry.World
    comm                 a communicator of mpi4py, in place of the group
    low_latency_mode     nothing: both modes are always there
    enable_shrink        the low-latency mode may lose ranks: low_latency_update_mask_buffer
    explicitly_destroy   destroy() may be called

    The other arguments size and tune buffers of DeepEP. Ferry's exchanges are made by the first calls that need them, so
    the first call of a shape comes outside of a graph's capture. Collective. FERRY_DEEPEP_DEVICE (cpu, cuda),
    FERRY_DEEPEP_DEADLINE (seconds), FERRY_DEEPEP_MAX_TOKENS and FERRY_DEEPEP_SHORT_HANDLES (0, 1) in the environment say
    what no argument can.
    """

    num_sms: int = 20

    def __init__(self, group: Any = None, num_nvl_bytes: int = 0, num_rdma_bytes: int = 0, low_latency_mode: bool = False,
                 num_qps_per_rank: int = 24, allow_nvlink_for_low_latency_mode: bool = True, allow_mnnvl: bool = False,
                 use_fabric: bool = False, explicitly_destroy: bool = False, enable_shrink: bool = False,
                 comm: Any = None, **more: Any) -> None:
        refuse_unknown("Buffer", more)
        self._ranks = Ranks(group, comm)
        self.rank, self.group_size = self._ranks.rank, self._ranks.size
        self.group = group if group is not None else comm
        self.num_nvl_bytes, self.num_rdma_bytes = num_nvl_bytes, num_rdma_bytes
        self.low_latency_mode = low_latency_mode
        self.explicitly_destroy, self.enable_shrink = explicitly_destroy, enable_shrink
        self._streams = Streams(self._ranks.device)
        self._normal = Normal(self._ranks)
        self._low_latency = LowLatency(self._ranks, self._streams, enable_shrink)
        self.runtime: Runtime | None = Runtime(self._ranks, self._streams, functools.partial(
            _close, self._normal, self._low_latency))

    def destroy(self) -> None:
        """Gives all memory back. Local: it waits for nobody."""
        if not self.explicitly_destroy:
            raise RuntimeError("destroy() was called; make the Buffer with explicitly_destroy=True, or let it go")
        if self.runtime is not None:
            self.runtime.destroy()
            self.runtime = None

    # ---- what callers ask before they begin

    @staticmethod
    def is_sm90_compiled() -> bool:
        """Whether FP8 works: always."""
        return True

    @staticmethod
    def set_num_sms(new_num_sms: int) -> None:
        """How many multiprocessors a call of the normal mode takes at most, where its config says nothing."""
        require_at_least(0, new_num_sms=new_num_sms)
        if new_num_sms % 2 != 0:
            raise ValueError(f"new_num_sms is {new_num_sms}; it must be even")
        Buffer.num_sms = new_num_sms

    @staticmethod
    def capture() -> EventOverlap:
        """A point in the current stream."""
        return EventOverlap(EventHandle())

    @staticmethod
    def get_dispatch_config(num_ranks: int) -> Config:
        return Config(Buffer.num_sms)

    @staticmethod
    def get_combine_config(num_ranks: int) -> Config:
        return Config(Buffer.num_sms)

    @staticmethod
    def get_low_latency_rdma_size_hint(num_max_dispatch_tokens_per_rank: int, hidden: int, num_ranks: int,
                                       num_experts: int) -> int:
        """A number of bytes for num_rdma_bytes, which allocates nothing."""
        return rdma_size_hint(num_max_dispatch_tokens_per_rank, hidden, num_ranks, num_experts)

    def get_comm_stream(self) -> Any:
        """The stream of calls with async_finish or previous_event."""
        return self._streams.comm()

    def get_local_buffer_tensor(self, dtype: torch.dtype, size: torch.Size | None = None, offset: int = 0,
                                use_rdma_buffer: bool = False) -> torch.Tensor:
        """Memory that no call reads: of that size, or none. Callers fill a buffer to clear it; nothing needs that."""
        return torch.zeros(size if size is not None else (0,), dtype=dtype, device=self._ranks.device)

    def get_dispatch_layout(self, topk_idx: torch.Tensor, num_experts: int, previous_event: Any = None,
                            async_finish: bool = False, allocate_on_comm_stream: bool = False, **more: Any
                            ) -> tuple[torch.Tensor, None, torch.Tensor, torch.Tensor, EventOverlap]:
        """Where tokens go: (tokens for each rank, None, tokens for each expert, bool [n, R], event).

        An id past the experts goes nowhere here; the dispatch refuses it.
        """
        refuse_unknown("get_dispatch_layout", more)
        require_ids("topk_idx", topk_idx)
        require_at_least(self.group_size, num_experts=num_experts)
        call = self._call(previous_event, async_finish, allocate_on_comm_stream)
        with call:
            device, tokens = topk_idx.device, topk_idx.shape[0]
            ids = topk_idx.to(torch.int64)
            is_none = (ids < 0) | (ids >= num_experts)
            of_rank = self._rank_of(ids, num_experts).masked_fill_(is_none, self.group_size)
            in_rank = torch.zeros((tokens, self.group_size + 1), dtype=torch.bool, device=device)
            in_rank.scatter_(1, of_rank, True)
            per_expert = torch.zeros(num_experts + 1, dtype=torch.int32, device=device)
            flat = ids.masked_fill(is_none, num_experts).flatten()
            per_expert.scatter_add_(0, flat, torch.ones_like(flat, dtype=torch.int32))
            found = [call.empty((self.group_size,), torch.int32), call.empty((num_experts,), torch.int32),
                     call.empty((tokens, self.group_size), torch.bool)]
            found[2].copy_(in_rank[:, :-1])
            torch.sum(found[2], 0, dtype=torch.int32, out=found[0])
            found[1].copy_(per_expert[:-1])
            event = call.event(topk_idx)
        return found[0], None, found[1], found[2], event

    # ---- the normal mode

    def dispatch(self, x: Tokens, handle: Any = None, num_tokens_per_rank: Any = None,
                 num_tokens_per_rdma_rank: Any = None, is_token_in_rank: torch.Tensor | None = None,
                 num_tokens_per_expert: torch.Tensor | None = None, topk_idx: torch.Tensor | None = None,
                 topk_weights: torch.Tensor | None = None, expert_alignment: int = 1, num_worst_tokens: int = 0,
                 config: Config | None = None, previous_event: Any = None, async_finish: bool = False,
                 allocate_on_comm_stream: bool = False, **more: Any) -> tuple[Any, ...]:
        """Sends tokens to the ranks of their experts.

        Returns (recv_x, recv_topk_idx, recv_topk_weights, num_recv_tokens_per_expert_list, handle, event): a row for
        each token that names an expert of this rank, by source rank and token. With `handle` only recv_x and the event,
        the rest is None. num_worst_tokens > 0: that many rows, the host waits for nothing, and the list is empty.
        """
        refuse_unknown("dispatch", more)
        require_at_least(0, num_worst_tokens=num_worst_tokens)
        require_at_least(1, expert_alignment=expert_alignment)
        blocks = self._most_blocks(config)
        call = self._call(previous_event, async_finish, allocate_on_comm_stream)
        given = x if isinstance(x, (tuple, list)) else (x,)
        with call:
            kind = Kind(x)  # it may copy scales, on the stream of the call
            read = (*given, kind.tokens, kind.scales, topk_idx, topk_weights, is_token_in_rank)
            if handle is not None:
                if topk_idx is not None or topk_weights is not None:
                    raise ValueError("topk_idx or topk_weights is given with a handle, which has them; leave them out")
                found = self._normal.replay(call, kind, handle, blocks)
                return found, None, None, None, None, call.event(*read, handle.routing.data)
            choice = Choice(self._ranks, topk_idx, topk_weights, is_token_in_rank, num_tokens_per_expert)
            if num_worst_tokens > 0:
                rows, ids, weights, left = self._normal.dispatch_worst(call, kind, choice, num_worst_tokens,
                                                                       is_token_in_rank, blocks)
                numbers: list[int] = []
            else:
                rows, ids, weights, counts, left = self._normal.dispatch(call, kind, choice, is_token_in_rank, blocks)
                numbers = expert_list(counts, expert_alignment)
            return rows, ids, weights, numbers, left, call.event(*read, *choice.inputs.values())

    internode_dispatch = dispatch

    def combine(self, x: torch.Tensor, handle: Any, topk_weights: torch.Tensor | None = None,
                bias: torch.Tensor | Sequence[torch.Tensor | None] | None = None, config: Config | None = None,
                previous_event: Any = None, async_finish: bool = False, allocate_on_comm_stream: bool = False,
                **more: Any) -> tuple[torch.Tensor, torch.Tensor | None, EventOverlap]:
        """Adds up, for each token that this rank dispatched, the rows that its ranks have for it. Weights nothing.

        x             [rows, hidden], in the rows of the dispatch
        topk_weights  f32 [rows, K]: come home and are added up alike
        bias          one or two [n, hidden], added first

        Returns (sums, summed topk_weights or None, event). A handle may be combined any number of times.
        """
        refuse_unknown("combine", more)
        given = biases(bias)
        call = self._call(previous_event, async_finish, allocate_on_comm_stream)
        with call:
            sums, weights = self._normal.combine(call, x, handle, topk_weights, given, self._most_blocks(config))
            return sums, weights, call.event(x, topk_weights, *given, handle.routing.data)

    internode_combine = combine

    # ---- the low-latency mode

    def clean_low_latency_buffer(self, num_max_dispatch_tokens_per_rank: int, hidden: int, num_experts: int,
                                 **more: Any) -> None:
        """Does nothing: no call leaves anything that the next one would have to be saved from."""
        refuse_unknown("clean_low_latency_buffer", more)

    def low_latency_dispatch(self, x: torch.Tensor, topk_idx: torch.Tensor, num_max_dispatch_tokens_per_rank: int,
                             num_experts: int, cumulative_local_expert_recv_stats: torch.Tensor | None = None,
                             dispatch_wait_recv_cost_stats: torch.Tensor | None = None, use_fp8: bool = True,
                             round_scale: bool = False, use_ue8m0: bool = False, async_finish: bool = False,
                             return_recv_hook: bool = False, **more: Any) -> tuple[Any, ...]:
        """Sends tokens to their experts.

        Returns (recv_x, recv_count, handle, event, hook). recv_x is bf16 [E_l, R * T, hidden]; with use_fp8 a pair of
        FP8 codes and scales f32 [E_l, R * T, hidden / 128], or int32 [E_l, R * T, hidden / 512] with use_ue8m0, rows
        side by side. Only the first recv_count[e] rows of an expert mean something. With return_recv_hook all that is
        valid after hook().
        """
        refuse_unknown("low_latency_dispatch", more)
        require_at_least(1, num_max_dispatch_tokens_per_rank=num_max_dispatch_tokens_per_rank, num_experts=num_experts)
        if use_ue8m0 and not (use_fp8 and round_scale):
            raise ValueError("use_ue8m0 is given; it needs use_fp8 and round_scale")
        if async_finish and return_recv_hook:
            raise ValueError("async_finish and return_recv_hook are given; only one of them can be")
        scales = "none" if not use_fp8 else "packed" if use_ue8m0 else "rounded" if round_scale else "plain"
        named = {"cumulative_counts": not_empty(cumulative_local_expert_recv_stats),
                 "waited_ns": not_empty(dispatch_wait_recv_cost_stats)}
        stats = {name: tensor for name, tensor in named.items() if tensor is not None}
        call = self._call(None, async_finish, False)
        with call:
            found, counts, handle, half = self._low_latency.dispatch(
                call, x, topk_idx, num_max_dispatch_tokens_per_rank, num_experts, scales, stats, return_recv_hook)
            event = call.event(x, topk_idx, *stats.values())
        return found, counts, handle, event, self._hook(half)

    def low_latency_combine(self, x: torch.Tensor, topk_idx: torch.Tensor, topk_weights: torch.Tensor, handle: Any,
                            use_logfmt: bool = False, zero_copy: bool = False, async_finish: bool = False,
                            return_recv_hook: bool = False, out: torch.Tensor | None = None,
                            combine_wait_recv_cost_stats: torch.Tensor | None = None, **more: Any
                            ) -> tuple[torch.Tensor, EventOverlap, Callable[[], None] | None]:
        """Adds up each token's rows, times topk_weights. Results travel as bf16, also with use_logfmt.

        x            bf16 [E_l, R * T, hidden], in the rows of the dispatch
        topk_idx     those of the dispatch, which the handle has
        zero_copy    the rows are in get_next_low_latency_combine_buffer, and x is not read
        out          bf16 [n, hidden]; None: a new tensor
        combine_wait_recv_cost_stats  int64 [R]: the nanoseconds that it waits for each rank are added

        Returns (sums, event, hook).
        """
        refuse_unknown("low_latency_combine", more)
        if async_finish and return_recv_hook:
            raise ValueError("async_finish and return_recv_hook are given; only one of them can be")
        rows = x
        routing_of(handle, LowLatencyHandle)
        if zero_copy:
            if handle.combine_rows is None:
                raise ValueError("zero_copy is given; write into get_next_low_latency_combine_buffer(handle) first")
            rows = handle.combine_rows
        call = self._call(None, async_finish, False)
        with call:
            sums, half = self._low_latency.combine(call, rows, topk_weights, handle, out, combine_wait_recv_cost_stats,
                                                   return_recv_hook)
            event = call.event(rows, topk_weights, out, combine_wait_recv_cost_stats, handle.routing.data)
        return sums, event, self._hook(half)

    def get_next_low_latency_combine_buffer(self, handle: Any) -> torch.Tensor:
        """bf16 [E_l, R * T, hidden] for the rows of a combine with zero_copy."""
        routing = routing_of(handle, LowLatencyHandle)
        family = routing.family
        if handle.combine_rows is None:
            shape = (family.local_experts, family.max_tokens * family.ranks.size, routing.hidden)
            handle.combine_rows = torch.empty(shape, dtype=torch.bfloat16, device=self._ranks.device)
        return handle.combine_rows  # type: ignore[no-any-return]

    def low_latency_update_mask_buffer(self, rank_to_mask: int, mask: bool = False) -> None:
        """Leaves a rank out, or takes it in again, which makes new exchanges: then all ranks do so."""
        self._require_shrink("low_latency_update_mask_buffer")
        require_whole(rank_to_mask=rank_to_mask)
        if not 0 <= rank_to_mask < self.group_size:
            raise ValueError(f"rank_to_mask is {rank_to_mask}; the ranks are 0 to {self.group_size - 1}")
        if mask:
            self._low_latency.mask(rank_to_mask)
        else:
            self._low_latency.unmask(rank_to_mask)

    def low_latency_query_mask_buffer(self, mask_status: torch.Tensor) -> None:
        """Writes 1 for each masked rank into int32 [R], else 0."""
        self._require_shrink("low_latency_query_mask_buffer")
        require_tensor("mask_status", mask_status, "[ranks]")
        if mask_status.dtype != torch.int32 or mask_status.shape[0] != self.group_size:
            raise ValueError(f"mask_status is {mask_status.dtype} {list(mask_status.shape)}; it must be torch.int32 "
                             f"[{self.group_size}]")
        masked = [int(rank in self._ranks.mask) for rank in range(self.group_size)]
        mask_status.copy_(torch.tensor(masked, dtype=torch.int32, device="cpu"))

    def low_latency_clean_mask_buffer(self) -> None:
        """Takes all ranks in again. Collective: the next call makes new exchanges."""
        self._require_shrink("low_latency_clean_mask_buffer")
        self._low_latency.unmask_all()

    # ---- what the calls share

    def _rank_of(self, ids: torch.Tensor, num_experts: int) -> torch.Tensor:
        """The rank of each expert; of -1 anything."""
        if num_experts % self.group_size == 0:
            return ids // (num_experts // self.group_size)
        shape = ferry.Shape(ranks=self.group_size, experts=num_experts, top_k=1, max_tokens=1, hidden=32)
        firsts = torch.tensor([shape.first_expert(rank) for rank in range(1, self.group_size)], dtype=torch.int64,
                              device=ids.device)
        return torch.bucketize(ids, firsts, right=True)

    def _call(self, previous_event: Any, async_finish: bool, allocate_on_comm_stream: bool) -> Call:
        if allocate_on_comm_stream and not (async_finish and previous_event is not None):
            raise ValueError("allocate_on_comm_stream is given; it needs async_finish and previous_event")
        self._ranks.require_open()
        return self._streams.call(previous_event, async_finish, allocate_on_comm_stream)

    def _require_shrink(self, call: str) -> None:
        self._ranks.require_open()
        if not self.enable_shrink:
            raise RuntimeError(f"{call} was called; make the Buffer with enable_shrink=True")

    def _hook(self, half: Any) -> Callable[[], None] | None:
        return None if half is None else lambda: half.finish(self._streams)

    def _most_blocks(self, config: Config | None) -> int:
        if config is not None and not isinstance(config, Config):
            raise TypeError(f"config is {told(config)}; it must be a deep_ep.Config")
        return max(_LEAST_BLOCKS, config.num_sms if config is not None else Buffer.num_sms)


def _close(*modes: Normal | LowLatency) -> None:
    for mode in modes:
        mode.close()
