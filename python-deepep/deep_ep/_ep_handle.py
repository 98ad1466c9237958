"""EPHandle: what a dispatch of ElasticBuffer leaves."""

from __future__ import annotations

import functools
from typing import Any, NoReturn

import torch

from ._arguments import require_tensor, told
from ._config import rounded_up
from ._handles import Routing, refuse_to_pickle
from ._slots import Slots


class EPHandle:
    """The routing of one dispatch. Given to a later dispatch its tokens go where those of the first one went.

    do_expand, num_experts, expert_alignment, num_max_tokens_per_rank, num_sms and topk_idx are those of the dispatch. Of
    one that had num_sms 0, num_sms is what get_theoretical_num_sms says: it and its combine take as many as they like.
    What tensors say is made of the outputs when it is first read; num_recv_tokens and num_expanded_tokens then wait for
    the dispatch. dst_buffer_slot_idx and the second column of recv_src_metadata are -1: nothing here has such slots.

    num_recv_tokens_per_expert_list         tokens of each local expert, rounded up; empty without do_cpu_sync
    num_unaligned_recv_tokens_per_expert    i32 [E_l]: not rounded
    psum_num_recv_tokens_per_expert         i32 [E_l]: expanded: where the rows of each end; else sums of the list
    psum_num_recv_tokens_per_scaleup_rank   i32 [R]: received tokens of the ranks up to each
    recv_src_metadata                       i32 [tokens, 2 + K]: source rank * num_max_tokens_per_rank + token; -1; and
                                            the row for each k where rows are expanded, else -1
    """

    token_metadata_at_forward = None
    channel_linked_list = None
    cached_recv_src_metadata_before_sort = None

    def __init__(self, routing: Routing, outputs: dict[str, torch.Tensor], *, do_expand: bool, expert_alignment: int,
                 num_sms: int, max_blocks: int, topk_idx: torch.Tensor, numbers: list[int] | None) -> None:
        self.routing, self._outputs = routing, outputs
        self.do_expand, self.expert_alignment, self.topk_idx = do_expand, expert_alignment, topk_idx
        self.num_sms, self.max_blocks = num_sms, max_blocks  # of the dispatch; 0 blocks: as many as it likes
        self.num_experts, self.num_max_tokens_per_rank = routing.family.experts, routing.family.max_tokens
        self.num_recv_tokens_per_expert_list = numbers or []
        self._is_exact = numbers is not None  # whether the host has waited for the counts

    def __reduce__(self) -> NoReturn:
        refuse_to_pickle()

    def deterministic_sort(self, *args: Any, **more: Any) -> None:
        """Does nothing: rows come in the order that it would give them."""

    def require_weights(self, given: Any) -> None:
        """Refuses topk_weights of a combine that are not those of this handle's rows."""
        columns = [] if self.do_expand else [self.routing.family.top_k]
        require_tensor("topk_weights", given, "[rows]" if self.do_expand else "[rows, K]")
        if given.shape[0] < self.least_rows or list(given.shape[1:]) != columns:
            raise ValueError(f"topk_weights has shape {list(given.shape)}; the dispatch of this handle has rows "
                             f"{[self.least_rows, *columns]}")

    def require_same(self, **given: int | None) -> None:
        """Refuses numbers that come with this handle and are others than those of its dispatch."""
        for name, value in given.items():
            if value is not None and value != getattr(self, name):
                raise ValueError(f"{name} is {value}; the dispatch of this handle had {getattr(self, name)}: leave it out")

    @functools.cached_property
    def slots(self) -> Slots | None:
        """None: expanded rows lie where Ferry puts them."""
        is_native = not self.do_expand or self.expert_alignment == self.routing.family.alignment
        return None if is_native else Slots(self._outputs["counts"], self.expert_alignment)

    @property
    def least_rows(self) -> int:
        """Rows that a combine must be given. Of expanded ones without do_cpu_sync only the device knows how many came:
        callers may leave out room behind them. Ferry refuses what is too few, but not what is laid out anew for it: that
        CPUs look at here, and GPUs do not."""
        if not self.do_expand:
            return self.routing.rows
        if self._is_exact:
            return self.num_expanded_tokens
        is_known = self.slots is not None and self.topk_idx.device.type == "cpu"
        return int(self.psum_num_recv_tokens_per_expert[-1]) if is_known else 0

    @property
    def row_topk_ids(self) -> torch.Tensor | None:
        return self._outputs.get("row_topk_ids")

    @functools.cached_property
    def num_recv_tokens(self) -> int:
        return int(self.psum_num_recv_tokens_per_scaleup_rank[-1]) if self._is_exact else self._all_tokens

    @functools.cached_property
    def num_expanded_tokens(self) -> int:
        """Rows of all local experts, with their padding; where the host does not know them, room for any dispatch."""
        if self.do_expand and self.slots is None:
            return self.routing.rows
        if self._is_exact:
            return sum(self.num_recv_tokens_per_expert_list)
        family, step = self.routing.family, self.expert_alignment
        named = min(family.top_k, family.local_experts) * self._all_tokens
        return rounded_up(named + (step - 1) * family.local_experts, step)

    @functools.cached_property
    def num_unaligned_recv_tokens_per_expert(self) -> torch.Tensor:
        return self._outputs["counts"]

    @functools.cached_property
    def psum_num_recv_tokens_per_expert(self) -> torch.Tensor:
        counts = self._outputs["counts"]
        if self.do_expand:
            starts = self._outputs["row_offsets"].view(torch.int32)[:-1] if self.slots is None else self.slots.starts
            return starts + counts
        step = self.expert_alignment
        return torch.cumsum((counts + (step - 1)) // step * step, 0, dtype=torch.int32)

    @functools.cached_property
    def psum_num_recv_tokens_per_scaleup_rank(self) -> torch.Tensor:
        return self._outputs["source_offsets"].view(torch.int32)[1:]

    @functools.cached_property
    def recv_src_metadata(self) -> torch.Tensor:
        most = self.num_max_tokens_per_rank
        tokens = self.num_recv_tokens
        columns = int(self.topk_idx.shape[1]) + 2
        found = torch.full((tokens, columns), -1, dtype=torch.int32, device=self._outputs["counts"].device)
        if self.do_expand:
            messages = self._outputs["messages"][:tokens]
            found[:, 0] = messages[:, 0] * most + messages[:, 1]
            rows = messages[:, 2:].contiguous()
            found[:, 2:] = rows if self.slots is None else torch.where(rows < 0, -1, self.slots.places(rows))
        else:
            src_info = self._outputs["src_info"][:tokens]
            found[:, 0] = src_info[:, 1] * most + src_info[:, 0]
        return found

    @functools.cached_property
    def dst_buffer_slot_idx(self) -> torch.Tensor:
        return torch.full(tuple(self.topk_idx.shape), -1, dtype=torch.int32, device=self.topk_idx.device)

    @property
    def _all_tokens(self) -> int:
        """How many tokens may have come, where the host does not know how many did."""
        return self.num_max_tokens_per_rank * self.routing.family.ranks.size


def handle_of(handle: Any) -> EPHandle:
    if not isinstance(handle, EPHandle):
        raise TypeError(f"handle is {told(handle)}; it must be what dispatch of an ElasticBuffer returned")
    return handle
