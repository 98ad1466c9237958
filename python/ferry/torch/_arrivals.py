"""The rows of a dispatch, as tensors."""

from __future__ import annotations

from typing import Any, Sequence

import torch

from .. import _exchange as plain
from .._arrivals import Arrivals as PlainArrivals, require_group
from .._errors import InvalidArgument
from .._frameworks import current_stream
from .._outputs import Spec
from ..formats import Format
from ._memory import Memory
from ._tensors import codes_of, scales_of


class Arrivals(PlainArrivals):
    """ferry.Arrivals with tensors of torch on the exchange's device.

    Offsets are int32. `payload` is bfloat16 for format bf16, float8_e4m3fn for fp8_* and mxfp8, else uint8; `scales`
    float32, float8_e8m0fnu, or float8_e4m3fn for nvfp4. `arrays` has the same memory, 8-bit floats as bytes.
    """

    @property
    def payload(self) -> Any:
        """The codes of the rows."""
        found = self._arrays.get("payload")
        return None if found is None else codes_of(self._format.name, found)

    @property
    def scales(self) -> Any:
        """Their scales."""
        found = self._arrays.get("scales")
        return None if found is None else scales_of(self._format.name, found)

    @property
    def rows(self) -> int:
        """As ferry.Arrivals.rows. On a GPU it waits for the dispatch."""
        return int(self._offsets("rows")[-1])

    def rows_of(self, group: int) -> slice:
        """As ferry.Arrivals.rows_of. On a GPU it waits for the dispatch."""
        if self.row_order == "by_source":
            raise InvalidArgument("rows_of: rows by_source lie by source; row_topk_ids has their experts")
        offsets = self._offsets("rows_of")
        require_group(group, len(offsets) - 1)
        first, end = (int(value) for value in offsets[group:group + 2])
        if self.counts is not None:
            return slice(first, first + int(self.counts[group]))
        src_info = self._written("src_info", "rows_of")
        return slice(first, first + int(torch.count_nonzero(src_info[first:end, 0] >= 0)))

    @property
    def has_token(self) -> Any:
        """bool [N], a tensor: whether a token came in that row. The host waits for nothing."""
        rows, device = int(self._by_row.shape[0]), self._by_row.device
        if self.row_order == "padded":
            in_groups = (torch.arange(self._stride, dtype=torch.int32, device=device) < self.counts[:, None]).flatten()
            return torch.nn.functional.pad(in_groups, (0, rows - in_groups.shape[0]))
        place = torch.arange(rows, dtype=torch.int32, device=device)
        has = place < self._offsets("has_token")[-1]
        return has if self.row_order == "by_source" else has & (self._written("src_info", "has_token")[:, 0] >= 0)

    def values(self, *, input_scale: float = 1.0) -> Any:
        """The rows decoded: float32 [N, hidden], padding as zeros. As ferry.Arrivals.values.

        On a GPU one kernel of the current stream does it, in any format, and the host waits for nothing.
        """
        if self.payload is None:
            raise InvalidArgument("values: rows in_place have no payload; Exchange.arrival_slots has the messages")
        if self.payload.device.type != "cpu":
            return self._decoded_there(torch.float32, input_scale)
        if self._has_decoder():
            return self.decoded(torch.float32).masked_fill_(~self.has_token[:, None], 0)
        on_host = PlainArrivals(self._core, self._format, self._arrays, None, self.row_order, self.expert_stride,
                                self._stream, self.format)
        return torch.from_numpy(on_host.values(input_scale=input_scale))

    def _decoded_there(self, dtype: torch.dtype, input_scale: float = 1.0) -> torch.Tensor:
        device, shape = self.payload.device, (self.payload.shape[0], self._core.shape.hidden)
        values = torch.empty(shape, dtype=dtype, device=device)
        scale = None if input_scale == 1.0 else torch.full((1,), input_scale, dtype=torch.float32, device=device)
        stride = self.expert_stride if self.row_order == "padded" else 0
        self._core.decode_on_gpu(self._arrays, values, (self.row_order, stride, self.format), scale,
                                 current_stream(device.index))
        return values

    def _has_decoder(self) -> bool:
        name = self._format.name
        return name == "bf16" or name.startswith(("fp8_", "mxfp8")) and self.scales.dim() < 5

    def decoded(self, dtype: torch.dtype) -> torch.Tensor:
        """values() in another dtype, rounded once. On a CPU rows without a token have what codes and scales say."""
        if self.payload.device.type != "cpu":
            return self._decoded_there(dtype)
        if not self._has_decoder():
            return self.values().to(dtype)  # type: ignore[no-any-return]
        return decode(self._format, self.payload, self.scales, dtype, padded=self.row_order == "padded")


class TensorExchange(plain.Exchange):
    """ferry.Exchange with memory of torch, whose dispatches return tensors as torch calls their elements."""

    _arrivals_type = Arrivals

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        if not self._on_cpu:
            self._framework = "torch"
        self._memory = Memory(torch.device(self._device))

    def _number(self, stream: Any, array: Any) -> int:
        return stream if type(stream) is int else super()._number(stream, array)

    def _stream_of(self, stream: Any, array: Any) -> int:
        return stream if type(stream) is int else super()._stream_of(stream, array)

    def _empty(self, specs: Sequence[Spec], stream: int) -> dict[str, torch.Tensor]:
        """Calls of ferry.torch go to the current stream, for which torch makes memory."""
        return self._memory.empty(specs)


def decode(encoding: Format, payload: torch.Tensor, scales: torch.Tensor | None, dtype: torch.dtype, *, padded: bool
           ) -> torch.Tensor:
    """[N, hidden] of rows in bf16 or E4M3 whose scales are no tiles; rows that hold nothing mean nothing.

    The product is made in float32 and rounded once. Codes are exact in bf16, so rows pass through memory twice, in as
    few bytes as can be.
    """
    if scales is None:
        return payload.to(dtype)
    factors = scales.to(torch.float32)
    if encoding.scale_layout == "transposed":
        factors = factors.transpose(1, 2).flatten(0, 1) if padded else factors.t()
    rows, hidden = payload.shape
    if rows > factors.shape[0]:  # padded rows past those of all groups have no scales
        factors = torch.nn.functional.pad(factors, (0, 0, 0, rows - factors.shape[0]))
    block = encoding.block
    if hidden % block != 0:
        return payload.to(torch.float32).mul_(factors.repeat_interleave(block, dim=1)[:, :hidden]).to(dtype)
    codes = payload.to(torch.bfloat16 if dtype == torch.bfloat16 else torch.float32).view(rows, hidden // block, block)
    return torch.mul(codes, factors[:, :, None], out=codes).view(rows, hidden).to(dtype)
