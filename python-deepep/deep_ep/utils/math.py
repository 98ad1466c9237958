"""Numbers, FP8 codes and comparisons that tests and benchmarks take from here."""

from __future__ import annotations

import functools
import operator
from typing import Any

import torch

_BLOCK = 128
_FP8_MOST = 448.0
_LEAST_AMAX = 1e-4


def ceil_div(x: int, y: int) -> int:
    return -(-x // y)


def align(x: int, y: int) -> int:
    """The first multiple of y that is not below x."""
    return ceil_div(x, y) * y


def safe_div(a: float, b: float) -> float:
    """a / b, and 0 where both are."""
    return a / b if a or b else 0


def calc_diff(x: torch.Tensor, y: torch.Tensor) -> float:
    """0 for the same values; grows with the squares of their differences, in the measure of both. Takes values above -1."""
    given, other = x.double() + 1, y.double() + 1
    squares = float((given.square() + other.square()).sum())
    return 1 - 2 * float((given * other).sum()) / squares if squares else 0.0


def per_token_cast_to_fp8(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """E4M3 codes [n, hidden], and f32 scales for each 128 columns: their largest value becomes 448."""
    rows, columns = x.shape
    blocks = torch.nn.functional.pad(x.float(), (0, -columns % _BLOCK)).view(rows, ceil_div(columns, _BLOCK), _BLOCK)
    amax = blocks.abs().amax(2).clamp(min=_LEAST_AMAX)
    codes = (blocks * (_FP8_MOST / amax)[:, :, None]).to(torch.float8_e4m3fn)
    return codes.flatten(1)[:, :columns].contiguous(), amax / _FP8_MOST


def per_token_cast_back(x_fp8: torch.Tensor, x_scales: torch.Tensor) -> torch.Tensor:
    """bf16 [n, hidden]. Scales are f32, or int32 that hold four exponents each, at any strides. The latter may have other
    rows: what counts is their order."""
    rows, columns = x_fp8.shape
    if x_scales.dtype == torch.int32:
        exponents = x_scales.clone(memory_format=torch.contiguous_format).view(torch.uint8)
        x_scales = (exponents.to(torch.int32) << 23).view(torch.float32).view(rows, exponents.numel() // max(1, rows))
    scales = x_scales.repeat_interleave(_BLOCK, dim=1)[:, :columns]
    return (x_fp8.float() * scales).to(torch.bfloat16)


def inplace_unique(x: torch.Tensor, num_slots: int) -> None:
    """Leaves in each row its different values of 0 to num_slots - 1, the largest first, and -1 behind them."""
    seen = torch.zeros((x.shape[0], num_slots + 1), dtype=torch.bool, device=x.device)
    seen.scatter_(1, torch.where(x < 0, num_slots, x).long(), True)
    slots = torch.arange(num_slots, dtype=x.dtype, device=x.device)
    found = torch.where(seen[:, :num_slots], slots, -1).sort(dim=1, descending=True).values
    x.fill_(-1)
    kept = min(num_slots, x.shape[1])
    x[:, :kept] = found[:, :kept]


def create_grouped_scores(scores: torch.Tensor, group_idx: torch.Tensor, num_groups: int) -> torch.Tensor:
    """Scores [n, E] with 0 for the experts of other groups than those named in group_idx [n, any]."""
    tokens, experts = scores.shape
    chosen = torch.zeros((tokens, num_groups), dtype=torch.bool, device=scores.device).scatter_(1, group_idx, True)
    return scores.masked_fill(~chosen.repeat_interleave(experts // num_groups, dim=1), 0)


def hash_tensor(t: torch.Tensor) -> int:
    """The sum of its bytes taken four at a time: tells tensors apart that a race has changed."""
    plain = t.clone(memory_format=torch.contiguous_format).flatten().view(torch.uint8)
    words = torch.nn.functional.pad(plain, (0, -plain.numel() % 4)).view(torch.int32)
    return int(words.sum(dtype=torch.int64))


def hash_tensors(*tensors: torch.Tensor) -> int:
    return functools.reduce(operator.xor, map(hash_tensor, tensors), 0)


def count_bytes(*tensors: Any) -> int:
    """Bytes of tensors, which may lie in tuples and lists, or be None."""
    return sum(one.numel() * one.element_size() if isinstance(one, torch.Tensor) else count_bytes(*one)
               for one in tensors if one is not None)
