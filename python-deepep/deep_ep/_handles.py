"""What a dispatch leaves for later calls: a tuple, as callers know it, with Ferry's handle."""

from __future__ import annotations

from typing import Any, Iterator, NoReturn

import torch

from ._arguments import told
from ._exchanges import Family


class LazyTuple(tuple):  # type: ignore[type-arg]
    """A tuple whose elements are made when they are read: few callers do, and each would be a kernel or two."""

    def __new__(cls, *elements: Any) -> LazyTuple:
        self = super().__new__(cls, elements)
        self._made = {}
        return self

    _made: dict[int, Any]

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return tuple(self[place] for place in range(*index.indices(len(self))))
        place = range(len(self))[index]
        element = super().__getitem__(place)
        if not callable(element):
            return element
        if place not in self._made:
            self._made[place] = element()
        return self._made[place]

    def __iter__(self) -> Iterator[Any]:
        return (self[place] for place in range(len(self)))

    def __reduce__(self) -> NoReturn:
        refuse_to_pickle()


def refuse_to_pickle() -> NoReturn:
    raise TypeError("a handle cannot be pickled or copied: it is for the exchanges of its buffer, in this process; pass "
                    "on the handle itself")


class Routing:
    """Ferry's handle of one dispatch, and on which exchanges it works."""

    def __init__(self, family: Family, data: torch.Tensor, tokens: int, rows: int, hidden: int) -> None:
        self.family, self.data = family, data
        self.tokens = tokens  # of this rank
        self.rows = rows  # that x of a combine has at least
        self.hidden = hidden  # of the dispatch
        self.half: Any = None  # of a dispatch with a hook: what the hook does, which writes `data`


class NormalHandle(LazyTuple):
    """(rows by source rank, -, -, source token of each row, is_token_in_rank, -).

    The first is int32 [R, R]: how many rows come to rank j from ranks up to i; only the column of this rank is known, the
    others are -1. The places that are None have no meaning here.
    """

    routing: Routing

    @classmethod
    def of(cls, routing: Routing, source_offsets: torch.Tensor, src_info: torch.Tensor,
           is_token_in_rank: torch.Tensor | None, num_rows: int) -> NormalHandle:
        ranks = routing.family.ranks

        def prefixes() -> torch.Tensor:
            matrix = torch.full((ranks.size, ranks.size), -1, dtype=torch.int32, device=source_offsets.device)
            matrix[:, ranks.rank] = source_offsets[1:]
            return matrix

        handle = cls(prefixes, None, None, lambda: src_info[:num_rows, 0], is_token_in_rank, None)
        handle.routing = routing
        return handle


class LowLatencyHandle(LazyTuple):
    """(source token of each row, begin << 32 | count of each expert and source, max tokens, hidden, experts)."""

    routing: Routing
    combine_rows: torch.Tensor | None = None  # what get_next_low_latency_combine_buffer gave

    @classmethod
    def of(cls, routing: Routing, src_info: torch.Tensor, counts: torch.Tensor, source_starts: torch.Tensor
           ) -> LowLatencyHandle:
        family = routing.family
        local = family.local_experts

        def ranges() -> torch.Tensor:
            ends = torch.cat([source_starts[:, 1:], counts[:, None]], dim=1)
            starts = source_starts.to(torch.int64)
            return (starts << 32) | (ends - source_starts).to(torch.int64)

        handle = cls(lambda: src_info.view(local, -1, 2)[:, :, 0], ranges, family.max_tokens, routing.hidden,
                     family.experts)
        handle.routing = routing
        return handle


def routing_of(handle: Any, kind: type[NormalHandle] | type[LowLatencyHandle]) -> Routing:
    if not isinstance(handle, kind):
        raise TypeError(f"handle is {told(handle)}; it must be what a dispatch of this mode returned")
    return handle.routing
