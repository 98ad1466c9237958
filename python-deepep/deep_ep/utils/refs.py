"""What dispatch and combine must give, bit for bit: in plain torch, from the tokens and ids of all ranks.

It takes nothing from a buffer. The ranks are those of torch.distributed's default group.
"""

from __future__ import annotations

from typing import Any, Sequence

import torch
import torch.distributed as dist

from .envs import get_global_seed

_PRIME = (1 << 31) - 1
_TOKEN_STEP, _COLUMN_STEP, _SEED_STEP = 748_392_193, 1_290_017, 69_069


def dispatch(x: Any, topk_idx: torch.Tensor, topk_weights: torch.Tensor | None, num_max_tokens_per_rank: int,
             num_experts: int) -> tuple[Any, torch.Tensor, torch.Tensor | None, torch.Tensor, torch.Tensor]:
    """Rows by source rank and token: one for each token that names an expert of this rank. Collective.

    x  [n, hidden], or a pair with scales

    Returns (x, topk_idx with local ids or -1, topk_weights, source rank * num_max_tokens_per_rank + token, rows of each
    source rank).
    """
    rank, ranks = dist.get_rank(), dist.get_world_size()
    local = num_experts // ranks
    counts = _counts_of_all_ranks(topk_idx)
    ids = _of_all_ranks(topk_idx, counts)
    is_here = (ids >= rank * local) & (ids < (rank + 1) * local)
    taken = is_here.any(1)

    def rows_of(given: torch.Tensor) -> torch.Tensor:
        return _of_all_ranks(given, counts)[taken]

    sources = torch.cat([torch.arange(count, dtype=torch.int32, device=ids.device) + source * num_max_tokens_per_rank
                         for source, count in enumerate(counts)])[taken]
    per_rank = torch.stack([part.sum(dtype=torch.int32) for part in torch.split(taken, counts)])
    found = rows_of(x) if isinstance(x, torch.Tensor) else tuple(rows_of(part) for part in x)
    weights = None if topk_weights is None else rows_of(topk_weights)
    return found, torch.where(is_here, ids - rank * local, -1)[taken], weights, sources, per_rank


def generate_pre_combine_data(src_token_global_idx: torch.Tensor, num_max_tokens_per_rank: int, num_topk: int,
                              hidden: int) -> torch.Tensor:
    """bf16 [tokens, K, hidden]: what the experts give for tokens that are known by source rank *
    num_max_tokens_per_rank + token. It follows from the token, k, the column and the global seed, so every rank makes the
    same. Numbers of -1 to 1; in odd columns one of four is 2^30 or -2^30, which swallow others, so that a sum says what
    was added when."""
    tokens = src_token_global_idx.to(torch.int64)
    columns = torch.arange(hidden, dtype=torch.int64, device=tokens.device)
    is_odd = columns % 2 == 1
    made = torch.empty((tokens.shape[0], num_topk, hidden), dtype=torch.bfloat16, device=tokens.device)
    for k in range(num_topk):
        begin = (tokens * num_topk + k) * _TOKEN_STEP + get_global_seed() * _SEED_STEP
        mixed = (begin[:, None] + columns * _COLUMN_STEP) % _PRIME
        mixed = mixed * mixed % _PRIME
        numbers = mixed.to(torch.float32) / _PRIME * 2 - 1
        is_large = is_odd & (mixed % 4 == 0)
        made[:, k] = torch.where(is_large, numbers.sign() * 2.0**30, numbers).to(torch.bfloat16)
    return made


def ordered_accumulate(data: torch.Tensor, initial_value: torch.Tensor | None = None) -> torch.Tensor:
    """bf16 [n, hidden]: the sum over k of data [n, K, hidden], one k after the other in f32, behind initial_value."""
    total = torch.zeros_like(data[:, 0], dtype=torch.float32) if initial_value is None else initial_value.float()
    for k in range(data.shape[1]):
        total = total + data[:, k].float()
    return total.to(torch.bfloat16)


def combine(y: torch.Tensor, topk_idx: torch.Tensor, num_scaleout_ranks: int, num_scaleup_ranks: int, num_experts: int,
            bias: torch.Tensor | Sequence[torch.Tensor] | None, reduce_in_local: bool, reduce_in_scaleup: bool
            ) -> torch.Tensor:
    """bf16 [n, hidden]: this rank's sums, of what the experts give for its tokens, y [n, K, hidden].

    The bias comes first, then the rows of a token in the order of k, in f32. With reduce_in_local the rows of a rank are
    one, their sum in bf16, at the last k that names the rank; with reduce_in_scaleup so are those of ranks beside each
    other.
    """
    parts = y.masked_fill((topk_idx < 0)[:, :, None], 0)
    rank_experts = num_experts // (num_scaleout_ranks * num_scaleup_ranks)
    for is_wanted, experts in ((reduce_in_local, rank_experts), (reduce_in_scaleup, rank_experts * num_scaleup_ranks)):
        if is_wanted:
            parts = _summed_at_last_k(parts, topk_idx // experts)
    given = [bias] if isinstance(bias, torch.Tensor) else list(bias or ())
    first = None
    for one in given:
        first = one.float() if first is None else first + one.float()
    return ordered_accumulate(parts, first)


def _summed_at_last_k(parts: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:
    """Sums in bf16 of the rows of a token that have the same group, each at the last k of its group; 0 elsewhere."""
    tokens, top_k = groups.shape
    each = torch.arange(tokens, device=groups.device)
    positions = torch.arange(top_k, device=groups.device)
    last = torch.where(groups[:, :, None] == groups[:, None, :], positions, -1).amax(2)
    sums = torch.zeros_like(parts, dtype=torch.float32)
    for k in range(top_k):
        sums[each, last[:, k]] += parts[:, k].float()
    return sums.to(torch.bfloat16)


def _counts_of_all_ranks(tensor: torch.Tensor) -> list[int]:
    mine = torch.tensor([tensor.shape[0]], dtype=torch.int64, device=tensor.device)
    came = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(came, mine)
    return [int(one) for one in came]


def _of_all_ranks(tensor: torch.Tensor, counts: list[int]) -> torch.Tensor:
    """The rows of all ranks behind each other. They travel as bytes: not all backends know all types."""
    rows = tensor.clone(memory_format=torch.contiguous_format).view(torch.uint8)
    sent = rows.new_zeros((max(counts), rows.shape[1]))
    sent[:rows.shape[0]] = rows
    came = [torch.empty_like(sent) for _ in counts]
    dist.all_gather(came, sent)
    return torch.cat([one[:count] for one, count in zip(came, counts)]).view(tensor.dtype)
