"""Scores of experts that send one rank more tokens than the others, as a router out of balance does."""

from __future__ import annotations

import functools
import math

import torch

from .._ranks import chosen_device
from .math import ceil_div

_SAMPLE = 4096  # tokens that say what a factor does
_MOST_FACTOR = 1e4
_STEPS = 20


def get_unbalanced_scores(num_tokens: int, num_experts: int, num_ranks: int, num_topk: int, ratio: float,
                          precise: bool) -> torch.Tensor:
    """f32 [tokens, experts], all positive. By torch.topk rank 0 gets `ratio` times as many tokens as another rank: about
    that by chance, or with `precise` as nearly as whole tokens can."""
    make = get_precise_unbalanced_scores if precise else get_random_unbalanced_scores
    return make(num_tokens, num_experts, num_ranks, num_topk, ratio)


def get_random_unbalanced_scores(num_tokens: int, num_experts: int, num_ranks: int, num_topk: int,
                                 ratio: float) -> torch.Tensor:
    """Random scores; those of rank 0 are greater by a factor."""
    factor = map_unbalanced_ratio_to_factor(num_tokens, num_experts, num_ranks, num_topk, ratio)
    return get_scores_by_factor(num_tokens, num_experts, num_ranks, factor)


def get_scores_by_factor(num_tokens: int, num_experts: int, num_ranks: int, factor: float) -> torch.Tensor:
    return _scaled(_random_scores(num_tokens, num_experts, None), num_experts // num_ranks, factor)


@functools.lru_cache
def map_unbalanced_ratio_to_factor(num_tokens: int, num_experts: int, num_ranks: int, num_topk: int,
                                   ratio: float) -> float:
    """The factor on the scores of rank 0 for which it gets `ratio` times as many tokens as another rank on average, or
    the nearest ratio that there is. Found by halving, with tokens of its own that are the same each time."""
    if ratio == 1.0 or num_ranks == 1:
        return 1.0
    low, high = math.log(1 / _MOST_FACTOR), math.log(_MOST_FACTOR)
    scores = _random_scores(_SAMPLE, num_experts, torch.Generator(chosen_device()).manual_seed(0))
    local = num_experts // num_ranks
    for _ in range(_STEPS):
        middle = (low + high) / 2
        scaled = _scaled(scores, local, math.exp(middle))
        reached = _tokens_of_ranks(scaled.topk(num_topk, dim=1).indices, local, num_ranks)
        first, others = float(reached[0]), float(reached[1:].sum()) / (num_ranks - 1)
        low, high = (middle, high) if first < ratio * others else (low, middle)
    return math.exp(high)


def get_precise_unbalanced_scores(num_tokens: int, num_experts: int, num_ranks: int, num_topk: int,
                                  ratio: float) -> torch.Tensor:
    """Deals ranks to tokens, then experts. Raises ValueError where tokens cannot be dealt so."""
    device = chosen_device()
    local = num_experts // num_ranks
    is_dealt = _dealt_ranks(num_tokens, num_experts, num_ranks, num_topk, ratio, device)
    scores = torch.rand((num_tokens, num_ranks, local), dtype=torch.float32, device=device) + 0.5
    # A rank that was dealt has an expert before all others, so the top k name it; and ranks that were not dealt come last.
    first = torch.nn.functional.one_hot(scores.argmax(2), local)
    return (scores + is_dealt[:, :, None] * (1 + first)).flatten(1)


def generate_rank_count(num_tokens: int, num_experts: int, num_ranks: int, num_topk: int, ratio: float) -> torch.Tensor:
    """int32 [tokens, ranks]: how many experts of each rank the tokens of get_precise_unbalanced_scores name."""
    scores = get_precise_unbalanced_scores(num_tokens, num_experts, num_ranks, num_topk, ratio)
    of_rank = scores.topk(num_topk, dim=1).indices // (num_experts // num_ranks)
    counts = torch.zeros((num_tokens, num_ranks), dtype=torch.int32, device=scores.device)
    return counts.scatter_add_(1, of_rank, torch.ones_like(of_rank, dtype=torch.int32))


def generate_topk_idx(rank_count: torch.Tensor, num_tokens: int, num_experts: int, num_ranks: int,
                      num_topk: int) -> torch.Tensor:
    """int64 [tokens, K]: as many experts of each rank by chance as rank_count says, K for a token."""
    local = num_experts // num_ranks
    order = torch.rand((num_tokens, num_ranks, local), dtype=torch.float32, device=rank_count.device).argsort(2).argsort(2)
    return (order < rank_count[:, :, None]).flatten(1).nonzero()[:, 1].view(num_tokens, num_topk)


def _dealt_ranks(tokens: int, experts: int, ranks: int, top_k: int, ratio: float, device: str) -> torch.Tensor:
    """bool [tokens, ranks]: so many ranks for a token as a router in balance finds, if the ratio leaves it."""
    local = experts // ranks
    least, most = max(1, ceil_div(top_k, local)), min(top_k, ranks, ratio + ranks - 1, 1 + (ranks - 1) / ratio)
    if least > most:
        raise ValueError(f"ratio is {ratio}; with top-{top_k} of {experts} experts on {ranks} ranks each token has {least} "
                         f"ranks or more, and at most {most:g} for that ratio")
    missed = math.comb(experts - local, top_k) / math.comb(experts, top_k)
    total = round(tokens * min(max(ranks * (1 - missed), least), most))
    firsts = min(tokens, round(total / (1 + (ranks - 1) / ratio)))  # tokens of rank 0
    sizes = torch.full((tokens,), total // tokens if tokens else 0, device=device)
    sizes[:total - int(sizes.sum())] += 1
    sizes = sizes[torch.randperm(tokens, device=device)]
    # Tokens of all ranks have rank 0, and others by chance.
    order = (torch.rand(tokens, dtype=torch.float32, device=device) - 1.0 * (sizes == ranks)).argsort()
    has_first = torch.zeros(tokens, dtype=torch.bool, device=device)
    has_first[order[:firsts]] = True
    dealt = torch.zeros((tokens, ranks), dtype=torch.bool, device=device)
    dealt[:, 0] = has_first
    # The other ranks are dealt in turns, so all get as many.
    wanted = sizes - has_first.to(sizes.dtype)
    owners = torch.repeat_interleave(torch.arange(tokens, device=device), wanted)
    turns = torch.randperm(ranks - 1, device=device) + 1
    dealt[owners, turns[torch.arange(owners.shape[0], device=device) % max(1, ranks - 1)]] = True
    return dealt


def _random_scores(tokens: int, experts: int, generator: torch.Generator | None) -> torch.Tensor:
    shape = (tokens, experts)
    return torch.randn(shape, dtype=torch.float32, device=chosen_device(), generator=generator).abs() + 1


def _scaled(scores: torch.Tensor, local: int, factor: float) -> torch.Tensor:
    return torch.cat((scores[:, :local] * factor, scores[:, local:]), 1)


def _tokens_of_ranks(ids: torch.Tensor, local: int, ranks: int) -> torch.Tensor:
    """How many tokens name an expert of each rank."""
    named = torch.zeros((ids.shape[0], ranks), dtype=torch.bool, device=ids.device)
    return named.scatter_(1, ids // local, True).sum(0)
