"""Exchanges by shape, made when a call first needs them."""

from __future__ import annotations

from typing import Any

import torch

import ferry

from ._arguments import require_tensor
from ._config import rounded_up
from ._ranks import RESERVED_SMS, Ranks
from ._streams import is_capturing

#: Handles pass from format to format, so rows of all formats begin experts at the same multiples.
_ALIGNMENT = 1
#: Beside bf16, and as large or smaller: an exchange takes a dispatch in any of them.
_MORE_FORMATS = ("fp8_block128", "fp8_block128_ue8m0")


class Family:
    """The exchanges of one shape whose handles work on each other: they differ in hidden, and in options.

    Making one is collective. Ranks ask for them in the same order, since they make the same calls.
    """

    def __init__(self, ranks: Ranks, experts: int, top_k: int, max_tokens: int, *, is_masked: bool = False,
                 alignment: int = _ALIGNMENT, **options: Any) -> None:
        self.ranks, self.alignment = ranks, alignment
        self._is_masked = is_masked  # whether the ranks that the buffer masks take no part
        self.experts, self.top_k, self.max_tokens = experts, top_k, max_tokens
        self._options = options
        self._made: dict[tuple[Any, ...], ferry.Exchange] = {}
        layout = ferry.exchange_layout(ranks=ranks.size, experts=experts, top_k=top_k, max_tokens=max_tokens, hidden=32,
                                       rank=ranks.rank, expert_alignment=alignment, **options)
        self.layout = layout
        self.handle_bytes: int = layout.handle_bytes
        self.local_experts: int = layout.groups

    def exchange(self, hidden: int, **options: Any) -> ferry.Exchange:
        """Takes dispatches in every format that tokens may have, so the backward pass needs no other one.

        A handle may outlive the buffer that it is of, in a world of the caller: no exchange is made for it then.
        """
        self.ranks.require_open()
        key = (hidden, *sorted(options.items()))
        found = self._made.get(key)
        if found is None:
            if is_capturing(self.ranks.device):
                raise RuntimeError(f"this graph needs an exchange of {self.experts} experts, {self.max_tokens} tokens and "
                                   f"{hidden} columns{_told(options)}, which is made by the first such call; make that "
                                   "call once before the capture")
            found = self._made[key] = self._make(hidden, options)
        return found

    def bytes_of_handle(self, tokens: int, counts: ferry.RowCounts | None) -> int:
        """Of a dispatch of so many tokens. Without counts the host does not know what came, and the handle is a whole one."""
        if counts is None or not self._options.get("short_handles"):
            return self.handle_bytes
        return int(self.layout.short_handle_bytes(tokens, counts))

    def add_to_mask(self, rank: int) -> None:
        for exchange in self._made.values():
            exchange.add_to_mask([rank])

    def close(self) -> None:
        for exchange in self._made.values():
            exchange.close()
        self._made.clear()

    def _make(self, hidden: int, options: dict[str, Any]) -> ferry.Exchange:
        ranks = self.ranks
        on_gpu: dict[str, Any] = {"reserve_sms": RESERVED_SMS} if ranks.is_gpu else {}
        more = [{"format": format, "expert_alignment": self.alignment} for format in _MORE_FORMATS]
        return ferry.Exchange(ranks.world, experts=self.experts, top_k=self.top_k, max_tokens=self.max_tokens,
                              hidden=hidden, more_formats=more, expert_alignment=self.alignment, deadline=ranks.deadline,
                              mask=sorted(ranks.mask) if self._is_masked else (), **on_gpu, **{**self._options, **options})


def _told(options: dict[str, Any]) -> str:
    return "".join(f", {name}={value!r}" for name, value in options.items())


def is_refused_for_tokens(error: ferry.InvalidArgument) -> bool:
    """Whether all ranks refused a dispatch because one has more tokens than the exchange takes."""
    text = str(error)
    return "max_tokens" in text and "All ranks refuse" in text


def lacks_room(error: ferry.InvalidArgument) -> bool:
    """Whether it is about dispatches that had more rows than room."""
    return "had more rows than room" in str(error)


def with_room(tokens: int) -> int:
    """A limit for so many tokens: a power of two, so that a growing batch makes few exchanges."""
    return max(64, 1 << (tokens - 1).bit_length() if tokens > 1 else 1)


class Kind:
    """How tokens travel: in which format of Ferry, and what rows come out.

    bfloat16 as it is. Codes of a byte with scales that the caller chose: a word of four bytes for each block of 128, be
    it a float32, or four powers of two for 32 columns each (MXFP8); or an int32 of four powers of two for 128 columns
    each. Nobody looks at codes and words. Everything else as bytes that nobody looks at.
    """

    def __init__(self, x: Any) -> None:
        is_pair = isinstance(x, (tuple, list))
        if is_pair and len(x) != 2:
            raise ValueError(f"x has {len(x)} elements; it must be a tensor, or a pair of codes and scales")
        self.tokens: Any
        self.tokens, scales = x if is_pair else (x, None)
        require_tensor("x", self.tokens, "[tokens, hidden]")
        if self.tokens.requires_grad:
            self.tokens = self.tokens.detach()
        self.has_scales = scales is not None
        self.dtype = self.tokens.dtype
        self.columns = int(self.tokens.shape[1])
        self.scale_columns = 0
        self.scales: torch.Tensor | None = None
        if scales is not None:
            self._take_scales(scales)
        elif self.dtype == torch.bfloat16:
            self.format, self.hidden = "bf16", self.columns
            if self.columns % 32 != 0:
                raise ValueError(f"x has {self.columns} columns; Ferry takes bfloat16 in multiples of 32")
        else:
            self.format, self.hidden = "bf16", self._as_bytes().shape[1] // 2
            if self.tokens.shape[1] % 64 != 0:
                raise ValueError(f"x has rows of {self.tokens.shape[1]} bytes; they must be a multiple of 64")

    @property
    def num_tokens(self) -> int:
        return int(self.tokens.shape[0])

    def _as_bytes(self) -> torch.Tensor:
        if self.tokens.stride(1) != 1:
            raise ValueError(f"x has strides {list(self.tokens.stride())}; the columns of a token must lie side by side")
        plain: torch.Tensor = self.tokens.view(torch.uint8)
        self.tokens = plain
        return plain

    def _take_scales(self, scales: torch.Tensor) -> None:
        require_tensor("the scales of x", scales, "[tokens, words]")
        if self.tokens.element_size() != 1 or scales.dtype not in (torch.float32, torch.int32):
            raise ValueError(f"x is {self.dtype} with scales {scales.dtype}; codes with scales must have one byte each, as "
                             "float8_e4m3fn, and their scales must be float32 or int32")
        words, fewer = -(-self.columns // 128), -(-self.columns // 512)
        self.scale_columns = int(scales.shape[1])
        self.is_packed = scales.dtype == torch.int32 and self.scale_columns == fewer < words
        if scales.shape[0] != self.num_tokens or self.scale_columns != words and not self.is_packed:
            raise ValueError(f"x has scales {list(scales.shape)} of {scales.dtype} for {list(self.tokens.shape)} codes; they "
                             f"must be float32 or int32 [{self.num_tokens}, {words}], a word for 128 columns, or int32 "
                             f"[{self.num_tokens}, {fewer}], a word for 512 columns that packs four powers of two")
        self.format = "fp8_block128_ue8m0" if self.is_packed else "fp8_block128"
        self.hidden = self.columns
        self._as_bytes()
        self.scales, self._scale_dtype = scales.detach(), scales.dtype
        if self.is_packed:
            if scales.stride(1) != 1:  # contiguous() would leave that of a single column
                self.scales = self.scales.clone(memory_format=torch.contiguous_format)
            self.scales = self.scales.view(torch.uint8)[:, :words]
        else:
            self.scales = self.scales.view(torch.float32)

    def inputs(self) -> dict[str, Any]:
        return {"tokens": self.tokens, "token_scales": self.scales, "format": self.format}

    def outputs(self, call: Any, rows: int, side_by_side: bool = False) -> tuple[Any, dict[str, torch.Tensor]]:
        """Rows like the tokens, and the same memory as a dispatch takes it. `side_by_side`: scales of a column are."""
        payload = call.empty((rows, self.columns), self.dtype)
        plain = payload if self.dtype == torch.bfloat16 else payload.view(torch.uint8)
        if self.scales is None:
            return payload, {"payload": plain}
        if side_by_side:
            scales = call.empty((self.scale_columns, rounded_up(rows, 4)), self._scale_dtype).t()[:rows]
        else:
            scales = call.empty((rows, self.scale_columns), self._scale_dtype)
        return (payload, scales), {"payload": plain, "row_scales": scales if self.is_packed else scales.view(torch.float32)}
