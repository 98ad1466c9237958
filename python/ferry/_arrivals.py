"""What a dispatch leaves at a rank: its rows, and the handle of its routing."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from . import _ferry
from ._arguments import int32
from ._arrays import Array, in_f32, on_host
from ._errors import InvalidArgument
from .formats import Format


def require_group(group: int, groups: int) -> None:
    """Raises InvalidArgument where there is no such group."""
    group = int32("rows_of: group", group)
    if not 0 <= group < groups:
        raise InvalidArgument(f"rows_of: group is {group}; this rank has {groups}: it must be 0 to {groups - 1}")


class Handle:
    """The routing of one dispatch at one rank, for later calls: `data`, u8, and what made it.

    `data` has layout.handle_bytes bytes. Where the exchange has short_handles, that of a dispatch that made its outputs
    when it knew what came has fewer: layout.short_handle_bytes.

    Any number may be alive. It is good for any exchange of the same ranks, experts, top_k, max_tokens, skip_a2a and
    fused_shared_expert. In a call all ranks give their handle of the same dispatch, or none does.
    """

    def __init__(self, data: Array, tokens: int, row_order: str, expert_stride: int, has_ids: bool = True) -> None:
        self.data = data
        self.tokens = tokens  #: how many this rank dispatched
        self.row_order = row_order
        self.expert_stride = expert_stride
        self.has_ids = has_ids  #: whether its dispatch had ids, and not in_rank

    def __repr__(self) -> str:
        return f"<ferry.Handle of {self.tokens} tokens, {self.row_order}>"


class Arrivals:
    """The rows of one dispatch at one rank. Arrays that this dispatch did not write are None.

    On a GPU its arrays lie there; rows, rows_of, has_token and values copy what they need to the host, and wait for it.
    N is the row capacity, `groups` this rank's experts (one more with a fused shared expert), K top_k, R the ranks.
    """

    payload: Array = None  #: u8 [N, bytes of a row]; format bf16: bf16 [N, hidden]
    scales: Array = None  #: f32 or u8, in the format's layout; None for bf16
    row_offsets: Array = None  #: u32 [groups + 1]: an expert's first row, and the end of the last one's
    expert_ids: Array = None  #: i32 [groups]
    src_info: Array = None  #: i32 [N, 2]: token and k at its source, -1 in padding; by_source: token, source rank
    scales_offsets: Array = None  #: u32 [groups]; tiled scales only
    counts: Array = None  #: i32 [groups]: tokens of each expert, without padding
    row_topk_ids: Array = None  #: by_source: i32 [N, K]: local experts of a row's token, else -1
    row_topk_weights: Array = None  #: by_source: f32 [N, K]: their weights, else 0
    source_offsets: Array = None  #: by_source: u32 [R + 1]: the first row of each source
    global_scales: Array = None  #: dynamic_scales: f32 [N]: what a row's values are multiplied by; bf16 if given so
    gather: Array = None  #: in_place: i32 [N]: the slot of a row, -1 in padding
    source_starts: Array = None  #: i32 [groups, R]: tokens of each expert from the ranks before
    row_weights: Array = None  #: f32 [N]: the weight of a row
    row_sources: Array = None  #: i32 [N]: the source rank of a row
    messages: Array = None  #: i32 [messages, 2 + K]: source rank, token, and the token's rows
    row_scales: Array = None  #: the scales of a row, row-major
    overflow: Array = None  #: i32 [1]: rows for which there was no room
    cumulative_counts: Array = None  #: i32 [groups]: `counts` is added to it
    waited_ns: Array = None  #: i64 [R]: nanoseconds waited for each rank are added to it

    handle: Handle | None  #: what later calls are given, if the dispatch was asked to leave it
    format: int  #: its number (more_formats of the exchange)
    row_order: str
    expert_stride: int
    _core: _ferry.Exchange
    _format: Format
    _arrays: dict[str, Array]
    _stream: int

    def __init__(self, core: _ferry.Exchange, encoding: Format, arrays: dict[str, Array], handle: Handle | None,
                 row_order: str, expert_stride: int, stream: int = 0, format: int = 0) -> None:
        fields = {**arrays}  # in one step each array and what else there is: attributes one by one take longer
        fields["format"] = format
        fields["_core"] = core
        fields["_format"] = encoding
        fields["_arrays"] = arrays
        fields["_stream"] = stream  # that writes them
        fields["handle"] = handle
        fields["row_order"] = row_order
        fields["expert_stride"] = expert_stride
        self.__dict__ = fields

    @property
    def arrays(self) -> dict[str, Array]:
        """All arrays that were written, by name: give them to a later dispatch to use their memory again."""
        return dict(self._arrays)

    @property
    def rows(self) -> int:
        """How many rows there are, padding included: what combine reads. padded: all that lie at the stride."""
        return int(self._host(self._offsets("rows"))[-1])

    def rows_of(self, group: int) -> slice:
        """The rows of the tokens of one group (local expert), without padding. Not for rows by_source."""
        if self.row_order == "by_source":
            raise InvalidArgument("rows_of: rows by_source lie in the order of their sources; row_topk_ids has their "
                                  "experts")
        if self.row_order == "padded":
            require_group(group, len(self.counts))
            first = group * self._stride
            return slice(first, first + int(self._host(self.counts)[group]))
        offsets = self._offsets("rows_of")
        require_group(group, len(offsets) - 1)
        first, end = (int(value) for value in self._host(offsets)[group:group + 2])
        if self.counts is not None:
            return slice(first, first + int(self._host(self.counts)[group]))
        src_info = self._written("src_info", "rows_of")
        return slice(first, first + int(np.count_nonzero(self._host(src_info)[first:end, 0] >= 0)))

    @property
    def has_token(self) -> np.ndarray[Any, Any]:
        """bool [N]: whether a token came in that row; else it is padding, and what it holds means nothing."""
        has = np.zeros(int(self._by_row.shape[0]), np.bool_)
        if self.row_order == "by_source":
            has[:self.rows] = True
        elif self.row_order == "padded":
            for group in range(len(self.counts)):
                has[self.rows_of(group)] = True
        else:
            src_info = self._written("src_info", "has_token")
            has[:self.rows] = self._host(src_info)[:self.rows, 0] >= 0
        return has

    def values(self, *, input_scale: float = 1.0) -> np.ndarray[Any, Any]:
        """The rows decoded: f32 [N, hidden], padding as zeros. `input_scale`: that of the dispatch (nvfp4).

        Rows in_place have no payload: Exchange.arrival_slots has them. Valid after the exchange's next dispatch, too,
        but not after its close.
        """
        if self.payload is None:
            raise InvalidArgument("values: rows in_place have no payload; Exchange.arrival_slots has the messages")
        if not self._format.encodes:
            raise InvalidArgument(f"values: nothing decodes the bytes of {self._format.name}; payload and scales have "
                                  "them as they came")
        has = self.has_token
        hidden = self._core.shape.hidden
        payload = self._host(self.payload)
        scales = None if self.scales is None else self._host(self.scales)
        if self.row_order == "padded" and scales is not None and scales.ndim == 3:
            by_row = np.ascontiguousarray(scales.transpose(0, 2, 1)).reshape(-1, scales.shape[1])
            values = np.zeros((len(has), hidden), np.float32)  # more rows than those of all groups are padding
            values[:len(by_row)] = self._format.decode(payload[:len(by_row)], by_row, hidden, input_scale=input_scale)
            values[~has] = 0
            if self.global_scales is not None:
                values *= np.where(has, in_f32(self._host(self.global_scales)), 0)[:, None].astype(np.float32)
        else:
            values = np.empty((len(has), hidden), np.float32)
            given = {"payload": payload} if scales is None else {"payload": payload, "scales": scales}
            for name in ("row_offsets", "scales_offsets", "global_scales"):
                if name in self._arrays:
                    given[name] = self._host(self._arrays[name])
            if self.row_order == "by_source":  # where scales lie in tiles, its rows are one group
                groups = self._core.layout.groups
                given["row_offsets"] = np.array([0] + [self.rows] * groups, np.uint32)
                given["scales_offsets"] = np.zeros(groups, np.uint32)
            self._core.decode_rows(given, values, has.view(np.uint8), input_scale, self.format)
        return values

    @property
    def _stride(self) -> int:
        """Of padded rows: from the first one of a group to that of the next."""
        return self.expert_stride or int(self._core.layout.expert_rows)

    @property
    def _by_row(self) -> Array:
        """An array that every dispatch of this order writes, with a line for each row."""
        return self.payload if self.payload is not None else self.gather

    def _written(self, name: str, by: str) -> Array:
        """An array that the dispatch may have left out."""
        array = getattr(self, name)
        if array is None:
            raise InvalidArgument(f"{by}: the dispatch wrote no {name}; give it among `outputs`")
        return array

    def _offsets(self, by: str) -> Array:
        return self._written("source_offsets" if self.row_order == "by_source" else "row_offsets", by)

    def _host(self, array: Array) -> np.ndarray[Any, Any]:
        return on_host(array, self._stream)

    def __reduce__(self) -> NoReturn:
        raise TypeError("Arrivals cannot be pickled or copied: they belong to an exchange of this process; take what you "
                        "need from their arrays, and their handle")

    def __repr__(self) -> str:
        offsets = self.source_offsets if self.row_order == "by_source" else self.row_offsets
        count = "rows" if offsets is None else f"{self.rows} rows"
        return f"<ferry.Arrivals: {count} {self.row_order}: {', '.join(self._arrays)}>"
