"""deep_ep.utils.refs against the oracle of these tests, and the buffers against deep_ep.utils.refs."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import deep_ep
from deep_ep.utils import envs, refs
from launch import on_processes
from oracle import Case, encoded
from test_elastic import expected_sums, output_of, same

MOST = 20


def outputs(case: Case, rank: int) -> torch.Tensor:
    """bf16 [n, K, hidden]: what the experts give for the tokens of a rank."""
    y = [torch.stack([output_of(case, rank, token, k) for k in range(case.top_k)]) for token in range(case.count(rank))]
    return torch.stack(y) if y else torch.empty((0, case.top_k, case.hidden), dtype=torch.bfloat16)


def check_dispatch(group: Any, rank: int, ranks: int) -> None:
    for seed in range(3):
        case = Case(ranks, seed=seed)
        sent = [(case.inputs(source)[0], *encoded(case.inputs(source)[0])) for source in range(ranks)]
        x, codes, scales = sent[rank]
        _, ids, weights = case.inputs(rank)
        by_column = torch.empty_strided(scales.shape, (1, 32)).copy_(scales)
        for given, parts in ((x, [0]), ((codes, scales), [1, 2]), ((codes, by_column), [1, 2])):
            found, local_ids, found_weights, sources, per_rank = refs.dispatch(given, ids, weights, MOST, case.experts)
            for tensor, part in zip((found,) if isinstance(found, torch.Tensor) else found, parts):
                assert same(tensor, case.of_rows(rank, [one[part] for one in sent]))
            assert same(local_ids, case.local_ids(rank)) and found_weights is not None
            assert same(found_weights.masked_fill(local_ids < 0, 0), case.weights_of_rows(rank))
            rows = case.rows(rank)
            assert sources.dtype == torch.int32 and sources.tolist() == [source * MOST + token for source, token in rows]
            assert per_rank.tolist() == [sum(one == source for one, _ in rows) for source in range(ranks)]
        assert refs.dispatch(x, ids, None, MOST, case.experts)[2] is None


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_dispatch(ranks: int) -> None:
    on_processes(ranks, check_dispatch)


@pytest.mark.parametrize("at_ranks", [True, False])
@pytest.mark.parametrize("biases", [0, 1, 2])
def test_combine_is_the_serial_sum(at_ranks: bool, biases: int) -> None:
    for seed in range(3):
        case = Case(3, seed=seed, top_k=5)
        for rank in range(3):
            given = [torch.full((case.count(rank), case.hidden), value, dtype=torch.bfloat16) for value in (0.3, -1.7)][:biases]
            bias = given[0] if biases == 1 else tuple(given) or None
            found = refs.combine(outputs(case, rank), case.inputs(rank)[1], 1, 3, case.experts, bias, at_ranks, False)
            assert same(found, expected_sums(case, rank, given, at_ranks))


def test_what_is_added_when() -> None:
    """1 beside 2^30 is lost, so a sum says what was added when. Experts 0 and 1 are of one rank, 2 and 3 of another."""
    big = 2.0**30

    def total(rows: list[float], ids: list[int], bias: float, *how: Any) -> float:
        y = torch.tensor(rows, dtype=torch.bfloat16)[None, :, None]
        given = torch.tensor([[bias]], dtype=torch.bfloat16)
        experts = 2 * how[0] * how[1]
        return refs.combine(y, torch.tensor([ids]), *how[:2], experts, given, *how[2:]).item()

    for ids, by_rank in (([0, 2, 1], 1.0), ([2, 1, 0], 0.0), ([0, 2, 3], 0.0), ([0, 1, -1], 0.0)):
        assert total([big, 1, -big], ids, 0.0, 1, 2, True, False) == (big if ids[2] < 0 else by_rank)
        assert total([big, 1, -big], ids, 0.0, 1, 2, False, False) == (big if ids[2] < 0 else 0.0)
    assert total([big, -big, 1], [0, 1, 2], -big, 1, 2, False, False) == -big + 0
    assert total([big, -big, 1], [0, 1, 2], 1.0, 1, 2, True, False) == 2.0
    # The second rank, the third, and the first, which is named once more at the end; and all in turn.
    assert total([0.5, big, -big, 0.5], [0, 2, 4, 1], 0.0, 1, 3, True, False) == 1.0
    assert total([0.5, big, -big, 0.5], [0, 2, 4, 1], 0.0, 1, 3, False, False) == 0.5
    # Ranks beside each other are one sum, in bf16, before the bias comes; those of two hosts are not.
    assert total([1.0, 2.0**-9], [0, 2], -1.0, 1, 2, True, True) == 0.0
    assert total([1.0, 2.0**-9], [0, 2], -1.0, 2, 1, True, True) == 2.0**-9
    assert total([1.0, 2.0**-9], [0, 2], -1.0, 1, 2, True, False) == 2.0**-9


def test_data_follows_from_the_token_and_the_seed() -> None:
    before = envs.get_global_seed()
    try:
        envs.init_seed(3)
        tokens = torch.tensor([5, 900_000, 6, 5], dtype=torch.int32)
        made = refs.generate_pre_combine_data(tokens, 16, 4, 512)
        assert made.shape == (4, 4, 512) and made.dtype == torch.bfloat16
        assert torch.equal(made[0], made[3]) and torch.equal(made[2:3], refs.generate_pre_combine_data(tokens[2:3], 16, 4, 512))
        numbers, others = made[:3, :, ::2].flatten(0, 1).float(), made[:, :, 1::2].float()
        assert 0.2 < float((others.abs() == 2.0**30).float().mean()) < 0.3
        assert abs(float(others.clamp(-1, 1).mean())) < 0.1
        assert bool((numbers.abs() <= 1).all()) and abs(float(numbers.mean())) < 0.02 and 0.55 < float(numbers.std()) < 0.6
        alike = torch.corrcoef(numbers).fill_diagonal_(0).abs()
        assert float(alike.max()) < 0.3  # rows have nothing to do with each other
        envs.init_seed(4)
        assert not torch.equal(made, refs.generate_pre_combine_data(tokens, 16, 4, 512))
    finally:
        envs.init_seed(before)


def check_buffer(group: Any, rank: int, ranks: int, allow_multiple_reduction: bool) -> None:
    buffer = deep_ep.ElasticBuffer(group, num_max_tokens_per_rank=MOST, allow_multiple_reduction=allow_multiple_reduction)
    for seed in range(3):
        case = Case(ranks, seed=seed, uneven=seed != 2)
        x, ids, weights = case.inputs(rank)
        found, local_ids, found_weights, handle, _ = buffer.dispatch(x, ids, weights, num_experts=case.experts)
        rows, row_ids, row_weights, sources, per_rank = refs.dispatch(x, ids, weights, MOST, case.experts)
        assert same(found, rows) and same(local_ids, row_ids) and row_weights is not None
        assert same(found_weights, row_weights.masked_fill(row_ids < 0, 0))
        assert same(handle.recv_src_metadata[:, 0], sources)
        assert same(handle.psum_num_recv_tokens_per_scaleup_rank, per_rank.cumsum(0, dtype=torch.int32))
        bias = torch.randn(x.shape, dtype=torch.float32).to(torch.bfloat16)
        y = refs.generate_pre_combine_data(sources, MOST, case.top_k, case.hidden)
        own = refs.generate_pre_combine_data(rank * MOST + torch.arange(x.shape[0]), MOST, case.top_k, case.hidden)
        given = refs.ordered_accumulate(y.masked_fill((row_ids < 0)[:, :, None], 0))
        sums, _, _ = buffer.combine(given, handle, bias=(bias, bias))
        assert torch.equal(sums, refs.combine(own, ids, 1, ranks, case.experts, (bias, bias), True, False))

        expanded, _, _, handle, _ = buffer.dispatch(x, ids, weights, num_experts=case.experts, do_expand=True)
        places = handle.recv_src_metadata[:, 2:]
        assert same(expanded[places[places >= 0]], rows[(places >= 0).nonzero()[:, 0]])
        given = torch.empty_like(expanded)
        given[places[places >= 0]] = y[places >= 0]
        sums, _, _ = buffer.combine(given, handle, bias=bias)
        assert torch.equal(sums, refs.combine(own, ids, 1, ranks, case.experts, bias, allow_multiple_reduction, False))


@pytest.mark.parametrize("ranks, allow_multiple_reduction", [(2, True), (3, False)])
def test_a_buffer_gives_what_they_say(ranks: int, allow_multiple_reduction: bool) -> None:
    on_processes(ranks, check_buffer, allow_multiple_reduction)
