"""The normal mode against the oracle."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import deep_ep
import ferry
from launch import on_processes, on_threads
from oracle import Case, decoded, encoded, packed



def layout_of(buffer: deep_ep.Buffer, case: Case) -> dict[str, torch.Tensor]:
    ids = case.inputs(buffer.rank)[1]
    per_rank, of_hosts, per_expert, in_rank, event = buffer.get_dispatch_layout(ids, case.experts)
    assert of_hosts is None and event.event is None
    assert torch.equal(in_rank, case.is_in_rank(buffer.rank)) and in_rank.dtype == torch.bool
    assert torch.equal(per_rank, in_rank.sum(0).to(torch.int32)) and per_rank.dtype == torch.int32
    assert torch.equal(per_expert, case.expert_counts(buffer.rank)) and per_expert.dtype == torch.int32
    return {"num_tokens_per_rank": per_rank, "is_token_in_rank": in_rank, "num_tokens_per_expert": per_expert}


def check_rows(case: Case, rank: int, handle: Any, rows: torch.Tensor, expected: list[torch.Tensor]) -> None:
    assert torch.equal(rows.view(torch.uint8), case.of_rows(rank, expected).view(torch.uint8))
    ends = [sum(source <= until for source, _ in case.rows(rank)) for until in range(case.ranks)]
    assert [int(handle[0][source][rank]) for source in range(case.ranks)] == ends
    assert handle[3].tolist() == [token for _, token in case.rows(rank)]


def sums_of(case: Case, rank: int, rows_of: Any) -> torch.Tensor:
    """f32 [n, ...]: the sum of what rows_of(rank) has for each token of `rank`."""
    x = case.inputs(rank)[0]
    sums = torch.zeros((x.shape[0], *rows_of(0).shape[1:]))
    for other in range(case.ranks):
        values = rows_of(other)
        for row, (source, token) in enumerate(case.rows(other)):
            if source == rank:
                sums[token] += values[row].float()
    return sums


def outputs_of_experts(case: Case, rank: int) -> torch.Tensor:
    made = torch.Generator().manual_seed(77 + rank)
    return torch.randn((len(case.rows(rank)), case.hidden), generator=made).to(torch.bfloat16)


def weight_gradients(case: Case, rank: int) -> torch.Tensor:
    made = torch.Generator().manual_seed(99 + rank)
    return torch.randn((len(case.rows(rank)), case.top_k), generator=made)


def check_combine(buffer: deep_ep.Buffer, case: Case, handle: Any, with_weights: bool, **call: Any) -> None:
    rank = buffer.rank
    n = case.count(rank)
    bias = tuple(torch.full((n, case.hidden), value, dtype=torch.bfloat16) for value in (0.5, -2.0))
    for given in (None, bias[0], bias):
        sums, weights, event = buffer.combine(outputs_of_experts(case, rank), handle, bias=given, **call,
                                              topk_weights=weight_gradients(case, rank) if with_weights else None)
        if call.get("async_finish"):
            event.current_stream_wait()
        added = 0 if given is None else bias[0].float() if given is bias[0] else bias[0].float() + bias[1].float()
        expected = sums_of(case, rank, lambda other: outputs_of_experts(case, other)) + added
        torch.testing.assert_close(sums.float(), expected, rtol=2**-7, atol=1e-6)
        assert sums.dtype == torch.bfloat16
        if with_weights:
            home = sums_of(case, rank, lambda other: weight_gradients(case, other))
            torch.testing.assert_close(weights, home, rtol=1e-6, atol=1e-6)
        else:
            assert weights is None


def a_step(group: Any, rank: int, ranks: int, seed: int, with_ids: bool) -> None:
    case = Case(ranks, seed=seed, hidden=512 if with_ids else 256)
    buffer = deep_ep.Buffer(group, int(1e6), explicitly_destroy=True)
    x, ids, weights = case.inputs(rank)
    named = {"topk_idx": ids, "topk_weights": weights} if with_ids else {}
    layout = layout_of(buffer, case)
    kinds = [[case.inputs(source)[0] for source in range(ranks)], [encoded(case.inputs(source)[0]) for source in range(ranks)],
             [encoded(case.inputs(source)[0], True) for source in range(ranks)]]
    kinds[2] = [(codes, packed(scales)) for codes, scales in kinds[2]] if case.hidden % 512 == 0 else kinds[1]
    handles = []
    for number, tokens in enumerate(kinds):
        call = {"async_finish": number % 2 == 1, "previous_event": buffer.capture() if number == 2 else None}
        given = tokens[rank]
        if number == 1:  # scales that lie side by side
            given = (given[0], given[1].T.contiguous().T)
        rows, row_ids, row_weights, numbers, handle, event = buffer.dispatch(
            given, **layout, **named, expert_alignment=4, config=deep_ep.Config(24, 8, 256), **call)
        assert (event.event is not None) == call["async_finish"]
        event.current_stream_wait()
        assert numbers == [-(-count // 4) * 4 for count in case.received(rank)]
        check_any(case, rank, handle, rows, tokens)
        if with_ids:
            assert torch.equal(row_ids, case.local_ids(rank)) and torch.equal(row_weights, case.weights_of_rows(rank))
        else:
            assert row_ids is None and row_weights is None
        handles.append(handle)
        check_combine(buffer, case, handle, with_ids, **call)
    for handle, tokens in zip(handles, [kinds[1], kinds[0], kinds[0]]):  # of one format, then of another
        again, *none, event = buffer.dispatch(tokens[rank], handle=handle)
        assert none == [None] * 4
        check_any(case, rank, handle, again, tokens)
        check_combine(buffer, case, handle, False)
    buffer.destroy()
    assert buffer.runtime is None


def check_any(case: Case, rank: int, handle: Any, rows: Any, tokens: list[Any]) -> None:
    if isinstance(rows, tuple):
        check_rows(case, rank, handle, rows[0], [one[0] for one in tokens])
        check_rows(case, rank, handle, rows[1], [one[1] for one in tokens])
        assert rows[1].is_contiguous() and rows[1].dtype == tokens[0][1].dtype
    else:
        check_rows(case, rank, handle, rows, tokens)


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("with_ids", [True, False])
@pytest.mark.parametrize("seed", [0, 2])
def test_threads(ranks: int, with_ids: bool, seed: int) -> None:
    on_threads(ranks, a_step, seed, with_ids)


@pytest.mark.parametrize("ranks", [2, 3])
def test_processes(ranks: int) -> None:
    on_processes(ranks, both_kinds)


def worst(group: Any, rank: int, ranks: int) -> None:
    case = Case(ranks, uneven=False)
    buffer = deep_ep.Buffer(group)
    x, ids, weights = case.inputs(rank)
    most = case.tokens * ranks + 1  # no multiple of the ranks
    for tokens in ([case.inputs(source)[0] for source in range(ranks)],
                   [encoded(case.inputs(source)[0]) for source in range(ranks)]):
        rows, row_ids, row_weights, numbers, handle, _ = buffer.dispatch(
            tokens[rank], topk_idx=ids, topk_weights=weights, num_worst_tokens=most, **layout_of(buffer, case))
        came = len(case.rows(rank))
        assert numbers == []
        for tensor in (*rows, row_ids, row_weights) if isinstance(rows, tuple) else (rows, row_ids, row_weights):
            assert tensor.shape[0] == most
        cut = tuple(one[:came] for one in rows) if isinstance(rows, tuple) else rows[:came]
        check_any(case, rank, short(handle, came), cut, tokens)
        assert torch.equal(row_ids[:came], case.local_ids(rank)) and bool((row_ids[came:] == -1).all())
        assert torch.equal(row_weights[:came], case.weights_of_rows(rank))
        y = torch.zeros((most, case.hidden), dtype=torch.bfloat16)
        y[:came] = outputs_of_experts(case, rank)
        sums, _, _ = buffer.combine(y, handle)
        expected = sums_of(case, rank, lambda other: outputs_of_experts(case, other))
        torch.testing.assert_close(sums.float(), expected, rtol=2**-7, atol=1e-6)
        again = buffer.dispatch(tokens[rank], handle=handle)[0]
        again = tuple(one[:came] for one in again) if isinstance(again, tuple) else again[:came]
        check_any(case, rank, short(handle, came), again, tokens)
    with pytest.raises(ValueError, match="num_worst_tokens is"):
        buffer.dispatch(x, topk_idx=ids, topk_weights=weights, num_worst_tokens=ranks, **layout_of(buffer, case))


def short(handle: Any, rows: int) -> Any:
    """What the test reads of a handle whose rows are more than came."""
    return {0: handle[0], 3: handle[3][:rows]}


def test_worst_case() -> None:
    on_threads(2, worst)


def limited(buffer: deep_ep.Buffer, tokens: int, most: int) -> tuple[int, torch.Tensor]:
    """Rows that are not of -1, and sums, of a dispatch of tokens that all go to both ranks."""
    ids, x = torch.tensor([0, 1]).repeat(tokens, 1), torch.ones((tokens, 64), dtype=torch.bfloat16)
    rows, row_ids, _, _, handle, _ = buffer.dispatch(
        x, topk_idx=ids, topk_weights=torch.ones((tokens, 2)), num_worst_tokens=most,
        num_tokens_per_expert=torch.tensor([tokens, tokens], dtype=torch.int32))
    assert rows.shape[0] == row_ids.shape[0] == most
    return int((row_ids >= 0).any(1).sum()), buffer.combine(rows, handle)[0]


@pytest.mark.parametrize("steps", [
    [([10, 2], [12, 12])],  # one rank has more than its share
    [([4, 4], [8, 16]), ([8, 1], [9, 10])],  # each rank has a limit of its own
    [([3, 3], [6, 6]), ([9, 0], [12, 12]), ([2, 2], [12, 4])],  # a larger exchange, and room for fewer again
    [([1, 1], [10, 10]), ([8, 0], [8, 8])],  # a rank has more than was agreed
])
def test_a_limit_of_rows_is_of_one_rank(steps: list[tuple[list[int], list[int]]]) -> None:
    def body(group: Any, rank: int, ranks: int) -> None:
        buffer = deep_ep.Buffer(group)
        for tokens, most in steps:
            came, sums = limited(buffer, tokens[rank], most[rank])
            assert came == sum(tokens) and torch.equal(sums, torch.full((tokens[rank], 64), 2.0, dtype=torch.bfloat16))

    on_threads(2, body)


def test_rows_past_the_limit_are_told() -> None:
    def body(group: Any, rank: int, ranks: int) -> None:
        buffer = deep_ep.Buffer(group)
        limited(buffer, 4, 8)
        if rank == 0:
            with pytest.raises(ferry.InvalidArgument, match="num_worst_tokens is 5, and more rows came to this rank.* 3 rows"):
                limited(buffer, 4, 5)
        else:
            buffer.dispatch(torch.ones((4, 64), dtype=torch.bfloat16), topk_idx=torch.tensor([[0, 1]] * 4),
                            num_tokens_per_expert=torch.tensor([4, 4], dtype=torch.int32), num_worst_tokens=8)
        assert limited(buffer, 4, 8)[0] == 8

    on_threads(2, body)


def growing(group: Any, rank: int, ranks: int) -> None:
    """Batches that grow on one rank, on another, and shrink again; handles of the small ones stay good."""
    buffer = deep_ep.Buffer(group)
    kept = []
    for tokens in (3, 90, 90, 300, 5):
        for uneven in (True, False):
            case = Case(ranks, tokens=tokens, uneven=uneven, hidden=64)
            x, ids, weights = case.inputs(rank)
            rows, _, _, _, handle, _ = buffer.dispatch(x, topk_idx=ids, topk_weights=weights, **layout_of(buffer, case))
            kept.append((case, handle))
            check_rows(case, rank, handle, rows, [case.inputs(source)[0] for source in range(ranks)])
    for case, handle in reversed(kept):
        check_combine(buffer, case, handle, True)
        again = buffer.dispatch(case.inputs(rank)[0], handle=handle)[0]
        check_rows(case, rank, handle, again, [case.inputs(source)[0] for source in range(ranks)])


def test_batches_that_grow() -> None:
    on_threads(3, growing)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.uint8, torch.int64, torch.float8_e5m2])
def test_tokens_of_any_type(dtype: torch.dtype) -> None:
    """Bits that nobody looks at."""
    def body(group: Any, rank: int, ranks: int) -> None:
        case = Case(ranks)
        buffer = deep_ep.Buffer(group)
        tokens = [torch.randint(0, 256, (case.count(source), 192), generator=torch.Generator().manual_seed(source)
                                ).to(torch.uint8).view(dtype) for source in range(ranks)]
        rows, _, _, _, handle, _ = buffer.dispatch(tokens[rank], topk_idx=case.inputs(rank)[1], **layout_of(buffer, case))
        assert rows.dtype == dtype
        check_rows(case, rank, handle, rows, tokens)
        check_combine(buffer, case, handle, True)

    on_threads(2, body)


def test_formats_share_an_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    """The backward pass of FP8 tokens is in bf16. It may run in a capture, or where others wait: nothing is made there."""
    made: list[tuple[int, int]] = []  # rank, hidden
    plain = ferry.Exchange

    def counting(world: ferry.World, **options: Any) -> ferry.Exchange:
        made.append((world.rank, options["hidden"]))
        return plain(world, **options)

    monkeypatch.setattr(ferry, "Exchange", counting)

    def body(group: Any, rank: int, ranks: int) -> None:
        case = Case(ranks, hidden=512)
        buffer = deep_ep.Buffer(group)
        x, ids, weights = case.inputs(rank)
        handle = buffer.dispatch(encoded(x), topk_idx=ids, topk_weights=weights, **layout_of(buffer, case))[4]
        buffer.dispatch(x, handle=handle)
        buffer.dispatch((encoded(x, True)[0], packed(encoded(x, True)[1])), handle=handle)
        check_combine(buffer, case, handle, False)

    on_threads(2, body)
    assert sorted(made) == [(0, 512), (1, 512)]


def test_experts_that_the_ranks_do_not_divide() -> None:
    def body(group: Any, rank: int, ranks: int) -> None:
        buffer = deep_ep.Buffer(group)
        ids = torch.tensor([[0, 4], [2, -1], [-1, -1], [3, 1]])
        per_rank, _, per_expert, in_rank, _ = buffer.get_dispatch_layout(ids, 5)
        assert in_rank.tolist() == [[True, True], [True, False], [False, False], [True, True]]
        assert per_rank.tolist() == [3, 2] and per_expert.tolist() == [1] * 5
        x = torch.ones((4, 64), dtype=torch.bfloat16)
        rows, row_ids, _, numbers, handle, _ = buffer.dispatch(
            x, topk_idx=ids, is_token_in_rank=in_rank, num_tokens_per_rank=per_rank, num_tokens_per_expert=per_expert)
        assert numbers == [[2, 2, 2], [2, 2]][rank]
        assert row_ids[:2].tolist() == [[[0, -1], [2, -1]], [[-1, 1], [0, -1]]][rank]
        sums, _, _ = buffer.combine(rows, handle)
        assert sums[:, 0].tolist() == [2, 1, 0, 2]

    on_threads(2, body)


def both_kinds(group: Any, rank: int, ranks: int) -> None:
    for with_ids in (True, False):
        a_step(group, rank, ranks, 2, with_ids)
