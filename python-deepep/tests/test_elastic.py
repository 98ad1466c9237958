"""ElasticBuffer against the oracle: rows by source and expanded, replays, sums in DeepEP's order."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import deep_ep
import ferry
from launch import on_processes, on_threads
from oracle import Case, encoded


def aligned(value: int, alignment: int) -> int:
    return -(-value // alignment) * alignment


def expanded_rows(case: Case, rank: int, alignment: int) -> dict[int, tuple[int, int, int]]:
    """(source, token, k) of each row that is no padding."""
    rows, first = {}, 0
    for expert in range(rank * case.local, (rank + 1) * case.local):
        place = first
        for source in range(case.ranks):
            for token, k in (case.inputs(source)[1] == expert).nonzero().tolist():
                rows[place] = (source, token, k)
                place += 1
        first = aligned(place, alignment)
    return rows


def output_of(case: Case, source: int, token: int, k: int) -> torch.Tensor:
    """What the expert of that token and k gives."""
    made = torch.Generator().manual_seed(source * 1000 + token * 10 + k)
    return torch.randn(case.hidden, generator=made).to(torch.bfloat16)


def expected_sums(case: Case, rank: int, bias: list[torch.Tensor], at_ranks: bool) -> torch.Tensor:
    """bf16 [n, hidden], bit for bit: bias, then partial sums of ranks by the largest k that names each, or all k."""
    ids = case.inputs(rank)[1]
    sums = torch.zeros((ids.shape[0], case.hidden), dtype=torch.bfloat16)
    for token in range(ids.shape[0]):
        total = torch.zeros(case.hidden)
        for one in bias:
            total = total + one[token].float()
        parts: dict[int, torch.Tensor] = {}
        last: dict[int, int] = {}
        for k, expert in enumerate(ids[token].tolist()):
            if expert >= 0:
                place = expert // case.local if at_ranks else k
                row = output_of(case, rank, token, k).float()
                parts[place] = parts[place] + row if place in parts else row
                last[place] = k
        for place in sorted(parts, key=lambda one: last[one]):
            total = total + parts[place].to(torch.bfloat16).float()
        sums[token] = total.to(torch.bfloat16)
    return sums


def same(found: torch.Tensor, expected: torch.Tensor) -> bool:
    plain = [torch.empty(one.shape, dtype=one.dtype).copy_(one) for one in (found, expected)]
    return bool(torch.equal(plain[0].view(torch.uint8), plain[1].view(torch.uint8)))


def parts_of(x: Any) -> list[torch.Tensor]:
    return list(x) if isinstance(x, tuple) else [x]


def check_plain(case: Case, rank: int, found: Any, sent: list[Any], handle: deep_ep.EPHandle, most: int) -> None:
    rows = case.rows(rank)
    for part, tensor in enumerate(parts_of(found)):
        assert same(tensor[:len(rows)], case.of_rows(rank, [parts_of(one)[part] for one in sent]))
    per_rank = [sum(source <= until for source, _ in rows) for until in range(case.ranks)]
    assert handle.psum_num_recv_tokens_per_scaleup_rank.tolist() == per_rank
    assert handle.recv_src_metadata[:len(rows), 0].tolist() == [source * most + token for source, token in rows]
    received = [aligned(count, handle.expert_alignment) for count in case.received(rank)]
    assert handle.psum_num_recv_tokens_per_expert.tolist() == torch.tensor(received).cumsum(0).tolist()


def check_expanded(case: Case, rank: int, found: Any, weights: torch.Tensor | None, sent: list[Any],
                   handle: deep_ep.EPHandle, most: int) -> None:
    rows = expanded_rows(case, rank, handle.expert_alignment)
    for part, tensor in enumerate(parts_of(found)):
        for row, (source, token, k) in rows.items():
            assert same(tensor[row], parts_of(sent[source])[part][token])
    if weights is not None:
        assert weights.dim() == 1
        assert all(weights[row] == case.inputs(source)[2][token, k] for row, (source, token, k) in rows.items())
    ends, first = [], 0
    for count in case.received(rank):
        ends.append(first + count)
        first = aligned(ends[-1], handle.expert_alignment)
    assert handle.psum_num_recv_tokens_per_expert.tolist() == ends
    assert handle.num_unaligned_recv_tokens_per_expert.tolist() == case.received(rank)
    metadata = handle.recv_src_metadata
    by_message = {tuple(place): row for row, place in rows.items()}
    for number, (source, token) in enumerate(case.rows(rank)):
        assert int(metadata[number, 0]) == source * most + token
        assert metadata[number, 2:].tolist() == [by_message.get((source, token, k), -1) for k in range(case.top_k)]
    assert int(handle.psum_num_recv_tokens_per_scaleup_rank[-1]) == len(case.rows(rank))


def rows_for_combine(case: Case, rank: int, found: Any, alignment: int, do_expand: bool) -> torch.Tensor:
    y = torch.full((parts_of(found)[0].shape[0], case.hidden), float("nan"), dtype=torch.bfloat16)
    if do_expand:
        for row, place in expanded_rows(case, rank, alignment).items():
            y[row] = output_of(case, *place)
        return y
    for row, (source, token) in enumerate(case.rows(rank)):
        total = torch.zeros(case.hidden)
        for k, expert in enumerate(case.inputs(source)[1][token].tolist()):
            if expert >= 0 and expert // case.local == rank:
                total = total + output_of(case, source, token, k).float()
        y[row] = total.to(torch.bfloat16)
    return y


def round_trip(buffer: deep_ep.ElasticBuffer, case: Case, sent: list[Any], alignment: int, do_expand: bool,
               do_cpu_sync: bool, number: int) -> None:
    rank, most = buffer.rank_idx, 20
    x, ids, weights = case.inputs(rank)
    event = {"previous_event": buffer.capture(), "allocate_on_comm_stream": True} if number % 2 else {}
    is_async = {"async_with_compute_stream": number % 3 == 1}
    totals = torch.zeros(case.local, dtype=torch.int32)
    found, found_ids, found_weights, handle, done = buffer.dispatch(
        sent[rank], ids, weights, totals, case.experts, most if number % 2 else None, alignment, num_sms=24,
        do_expand=do_expand, do_cpu_sync=do_cpu_sync, use_tma_aligned_col_major_sf=do_expand, **event, **is_async)
    done.current_stream_wait()
    assert totals.tolist() == case.received(rank)
    expected_list = [aligned(count, alignment) for count in case.received(rank)] if do_cpu_sync else []
    assert handle.num_recv_tokens_per_expert_list == expected_list
    assert torch.equal(handle.topk_idx, ids) and handle.topk_idx.data_ptr() != ids.data_ptr() or not ids.numel()
    came = len(case.rows(rank))
    if do_expand:
        assert found_ids is None
        check_expanded(case, rank, found, found_weights, sent, handle, most)
        assert not do_cpu_sync or parts_of(found)[0].shape[0] == sum(expected_list) and handle.num_recv_tokens == came
        for scales in parts_of(found)[1:]:
            assert scales.stride()[0] == 1 and scales.stride()[1] % 4 == 0
    else:
        check_plain(case, rank, found, sent, handle, most)
        assert torch.equal(found_ids[:came], case.local_ids(rank)) and bool((found_ids[came:] == -1).all())
        assert torch.equal(found_weights[:came], case.weights_of_rows(rank))
        assert found_ids.shape[0] == (came if do_cpu_sync else most * case.ranks)
    most_rows = most * case.ranks * min(case.top_k, case.local) + (alignment - 1) * case.local
    expanded = sum(expected_list) if do_cpu_sync else aligned(most_rows, alignment)
    assert handle.num_expanded_tokens == expanded
    assert not do_expand or parts_of(found)[0].shape[0] == expanded  # a multiple, which grouped matmuls want

    other = [case.inputs(source)[2] + 1 for source in range(case.ranks)]
    for new in (None, other[rank]):
        again, again_ids, again_weights, same_handle, _ = buffer.dispatch(
            sent[rank], topk_weights=new, handle=handle, do_expand=do_expand, do_zero_padding=do_expand)
        assert same_handle is handle and (again_weights is None) == (new is None)
        if do_expand:
            check_expanded(case, rank, again, None, sent, handle, most)
            real = expanded_rows(case, rank, alignment)
            for row in range(aligned(max(real, default=-1) + 1, alignment)):
                if row in real:
                    source, token, k = real[row]
                    assert new is None or again_weights[row] == other[source][token, k]
                else:
                    assert not any(bool(one[row].float().any()) for one in parts_of(again))
                    assert new is None or again_weights[row] == 0
        else:
            check_plain(case, rank, again, sent, handle, most)
            assert torch.equal(again_ids[:came], case.local_ids(rank))
    check_sums(buffer, case, found, found_weights, handle, do_expand, number)


def check_sums(buffer: deep_ep.ElasticBuffer, case: Case, found: Any, weights: torch.Tensor, handle: deep_ep.EPHandle,
               do_expand: bool, number: int) -> None:
    rank = buffer.rank_idx
    n = case.count(rank)
    bias = [torch.full((n, case.hidden), value, dtype=torch.bfloat16) for value in (0.3, -1.7)][:number % 3]
    y = rows_for_combine(case, rank, found, handle.expert_alignment, do_expand)
    for with_weights in (True, False):
        given = bias[0] if len(bias) == 1 else tuple(bias) or None
        sums, home, _ = buffer.combine(y, handle, weights if with_weights else None, given)
        at_ranks = buffer.allow_multiple_reduction or not do_expand
        assert same(sums, expected_sums(case, rank, bias, at_ranks))
        if with_weights:
            assert home is not None and torch.equal(home, case.inputs(rank)[2].masked_fill(case.inputs(rank)[1] < 0, 0))
        else:
            assert home is None


def a_step(group: Any, rank: int, ranks: int, allow_multiple_reduction: bool, seed: int = 0) -> None:
    buffer = deep_ep.ElasticBuffer(group, num_max_tokens_per_rank=20, hidden=256, explicitly_destroy=True,
                                   allow_multiple_reduction=allow_multiple_reduction, deterministic=True)
    assert buffer.get_logical_domain_size() == (1, ranks) and buffer.num_scaleup_ranks == ranks
    case = Case(ranks, seed=seed)
    number = 0
    for is_fp8 in (False, True):
        sent = [encoded(case.inputs(source)[0]) if is_fp8 else case.inputs(source)[0] for source in range(ranks)]
        for alignment in (8, 1) if ranks != 2 else (8, 40, 1):  # 40: laid out anew
            for do_expand in (False, True):
                for do_cpu_sync in (True, False):
                    round_trip(buffer, case, sent, alignment, do_expand, do_cpu_sync, number)
                    number += 1
    buffer.barrier()
    buffer.destroy()


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("allow_multiple_reduction", [True, False])
def test_threads(ranks: int, allow_multiple_reduction: bool) -> None:
    on_threads(ranks, a_step, allow_multiple_reduction)


def test_a_rank_without_tokens() -> None:
    on_threads(3, a_step, True, 2)


@pytest.mark.parametrize("ranks", [2, 3])
def test_processes(ranks: int) -> None:
    on_processes(ranks, a_step, True)


def exchanges_after(group: Any, allow_multiple_reduction: bool, do_expand: bool, with_weights: bool) -> list[dict[str, Any]]:
    """Of what the exchanges are made beside their family's shape, after a step on them."""
    buffer = deep_ep.ElasticBuffer(group, num_max_tokens_per_rank=4, allow_multiple_reduction=allow_multiple_reduction)
    ids = torch.tensor([[0, 1], [1, -1]])
    found, _, weights, handle, _ = buffer.dispatch(torch.ones((2, 64), dtype=torch.bfloat16), ids, num_experts=2,
                                                   topk_weights=torch.ones((2, 2)), do_expand=do_expand)
    buffer.combine(found, handle, weights if with_weights else None)
    buffer.dispatch(torch.ones((2, 64), dtype=torch.bfloat16), handle=handle, do_expand=do_expand)
    return [{"reduction": family._options.get("reduction", "by_rank"), **dict(key[1:])}
            for family in buffer._families.values() for key in family._made]


@pytest.mark.parametrize("allow_multiple_reduction", [True, False])
@pytest.mark.parametrize("do_expand", [True, False])
def test_one_exchange_has_the_dispatches_and_the_combines(allow_multiple_reduction: bool, do_expand: bool) -> None:
    """Where every row travels, too; and those that add up at the experts' ranks have no memory for that."""
    def body(group: Any, rank: int, ranks: int) -> None:
        reduction = "either" if do_expand and not allow_multiple_reduction else "by_rank"
        made = exchanges_after(group, allow_multiple_reduction, do_expand, False)
        assert made == [{"reduction": reduction}]
        made = exchanges_after(group, allow_multiple_reduction, do_expand, True)
        assert made == [{"reduction": reduction}, {"reduction": reduction, "returns_weights": True}]

    on_threads(2, body)


def slots(group: Any, rank: int, ranks: int) -> None:
    """Experts at multiples of the most rows that one can have, and a combine of as many rows as so many slots have."""
    case, most = Case(ranks, seed=1), 100
    buffer = deep_ep.ElasticBuffer(group, num_max_tokens_per_rank=most)
    x, ids, _ = case.inputs(rank)
    for do_cpu_sync in (False, True):
        found, _, _, handle, _ = buffer.dispatch(x, ids, num_experts=case.experts, do_expand=True, do_cpu_sync=do_cpu_sync,
                                                 expert_alignment=ranks * most)
        check_expanded(case, rank, found, None, [case.inputs(source)[0] for source in range(ranks)], handle, most)
        y = torch.zeros((case.local * ranks * most, case.hidden), dtype=torch.bfloat16)
        assert found.shape[0] % (ranks * most) == 0 and (do_cpu_sync or found.shape[0] > y.shape[0])
        rows = min(found.shape[0], y.shape[0])
        y[:rows] = rows_for_combine(case, rank, found, handle.expert_alignment, True)[:rows]
        assert same(buffer.combine(y, handle)[0], expected_sums(case, rank, [], True))
        with pytest.raises(ValueError, match="x has shape"):
            buffer.combine(y[:1], handle)


@pytest.mark.parametrize("ranks", [2, 4])
def test_experts_at_slots_of_the_most_rows(ranks: int) -> None:
    on_threads(ranks, slots)


def test_rows_by_source_have_one_exchange_for_all_alignments() -> None:
    """Only the numbers that the host and the handle say depend on it."""
    def body(group: Any, rank: int, ranks: int) -> None:
        buffer, case = deep_ep.ElasticBuffer(group, num_max_tokens_per_rank=20), Case(ranks)
        x, ids, _ = case.inputs(rank)
        for alignment in (1, 16, 3):
            found, _, _, handle, _ = buffer.dispatch(x, ids, num_experts=case.experts, expert_alignment=alignment)
            received = [aligned(count, alignment) for count in case.received(rank)]
            assert handle.expert_alignment == alignment and handle.num_recv_tokens_per_expert_list == received
            check_plain(case, rank, found, [case.inputs(source)[0] for source in range(ranks)], handle, 20)
            buffer.combine(found, handle)
        assert [len(family._made) for family in buffer._families.values()] == [1]
        for alignment, do_expand in ((0, False), (-8, True)):
            with pytest.raises(ValueError, match=f"expert_alignment is {alignment}; it must be 1 or more"):
                buffer.dispatch(x, ids, num_experts=case.experts, expert_alignment=alignment, do_expand=do_expand)

    on_threads(2, body)


def test_the_number_of_multiprocessors_that_a_handle_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """An automatic dispatch has a combine that is automatic, too."""
    taken: list[Any] = []
    combine = ferry.Exchange.combine

    def watched(self: Any, **given: Any) -> Any:
        taken.append(given["max_blocks"])
        return combine(self, **given)

    monkeypatch.setattr(ferry.Exchange, "combine", watched)

    def body(group: Any, rank: int, ranks: int) -> None:
        buffer = deep_ep.ElasticBuffer(group, num_max_tokens_per_rank=20)
        x, ids, _ = Case(ranks).inputs(rank)
        automatic, chosen = (buffer.dispatch(x, ids, num_experts=12, num_sms=sms)[3] for sms in (0, 10))
        assert automatic.num_sms == buffer.get_theoretical_num_sms(12, 3) and chosen.num_sms == 10
        rows = torch.zeros((automatic.num_recv_tokens, 256), dtype=torch.bfloat16)
        for handle, sms, blocks in ((automatic, 0, 0), (automatic, 6, 6), (chosen, 0, 10), (chosen, 8, 8)):
            buffer.combine(rows, handle, num_sms=sms)
            assert taken.pop() == blocks

    on_threads(1, body)


@pytest.mark.parametrize("do_expand", [True, False])
def test_ranks_are_added_by_the_last_k_that_names_them(do_expand: bool) -> None:
    """1 beside 2^30 is lost, so a sum says what was added when."""
    def body(group: Any, rank: int, ranks: int) -> None:
        buffer = deep_ep.ElasticBuffer(group, num_max_tokens_per_rank=4)
        ids = torch.tensor([[0, 1, 2], [2, 0, 1], [0, 2, 1], [2, -1, 0]])
        x = torch.ones((4, 64), dtype=torch.bfloat16)
        found, _, _, handle, _ = buffer.dispatch(x, ids, num_experts=3, do_expand=do_expand)
        y = torch.full_like(found, [2.0**30, -2.0**30, 1.0][rank])
        sums, _, _ = buffer.combine(y, handle)
        assert sums[:, 0].tolist() == [1.0, 0.0, 0.0, 2.0**30]
        sums, _, _ = buffer.combine(y, handle, bias=torch.full((4, 64), -2.0**30, dtype=torch.bfloat16))
        assert sums[:, 0].tolist() == [-2.0**30, -2.0**30, -2.0**30, 0.0]

    on_threads(3, body)


def test_weights_of_other_ranks_stay_away() -> None:
    """Values at -1 are not the expert's."""
    def body(group: Any, rank: int, ranks: int) -> None:
        buffer = deep_ep.ElasticBuffer(group, num_max_tokens_per_rank=4)
        ids = torch.tensor([[0, 1], [1, -1]])
        x = torch.ones((2, 64), dtype=torch.bfloat16)
        found, row_ids, _, handle, _ = buffer.dispatch(x, ids, num_experts=2)
        gradients = torch.full(row_ids.shape, 10.0 * rank + 1)
        _, home, _ = buffer.combine(found, handle, topk_weights=gradients)
        assert home is not None and home.tolist() == [[1.0, 11.0], [11.0, 0.0]]

    on_threads(2, body)


# Of DeepEP's ElasticBuffer.
NOT_ABOUT_EXPERTS = (
    "all_gather", "agrs_get_inplace_tensor", "agrs_set_config", "create_agrs_session", "destroy_agrs_session",
    "engram_fetch", "engram_write", "get_agrs_buffer_size_hint", "get_agrs_num_max_session_bytes",
    "get_engram_storage_size_hint", "get_pp_buffer_size_hint", "pp_recv", "pp_send", "pp_set_config")


def test_what_is_refused() -> None:
    def body(group: Any, rank: int, ranks: int) -> None:
        buffer = deep_ep.ElasticBuffer(group)
        x, ids = torch.ones((3, 64), dtype=torch.bfloat16), torch.tensor([[0, 1], [1, -1], [-1, -1]])
        for match, call in {
                "topk_idx or num_experts is None": lambda: buffer.dispatch(x),
                "num_max_tokens_per_rank is 0": lambda: buffer.dispatch(x, ids, num_experts=2),
                "previous_event is given; it needs allocate_on_comm_stream": lambda: buffer.dispatch(
                    x, ids, num_experts=2, num_max_tokens_per_rank=4, previous_event=buffer.capture()),
                "x of rank 0 has 3 rows; the limit is num_max_tokens_per_rank = 2": lambda: buffer.dispatch(
                    x, ids, num_experts=2, num_max_tokens_per_rank=2),
        }.items():
            with pytest.raises(ValueError, match=match):
                call()
        found, _, _, handle, _ = buffer.dispatch(x, ids, num_experts=2, num_max_tokens_per_rank=4)
        for match, call in {
                "topk_idx, do_cpu_sync or another do_expand": lambda: buffer.dispatch(x, ids, handle=handle),
                "another do_expand than False": lambda: buffer.dispatch(x, handle=handle, do_expand=True),
                "num_experts is 4; .* had 2": lambda: buffer.dispatch(x, handle=handle, num_experts=4),
                "num_max_tokens_per_rank is 8; .* had 4": lambda: buffer.dispatch(x, handle=handle,
                                                                                  num_max_tokens_per_rank=8),
                "expert_alignment is 8; .* had 1": lambda: buffer.dispatch(x, handle=handle, expert_alignment=8),
                "previous_event is given; it needs": lambda: buffer.combine(found, handle, previous_event=buffer.capture()),
                "x has shape": lambda: buffer.combine(found[:1], handle)}.items():
            with pytest.raises(ValueError, match=match):
                call()
        with pytest.raises(TypeError, match="handle is <class 'tuple'>"):
            buffer.combine(found, ())
        with pytest.raises(RuntimeError, match="explicitly_destroy=True"):
            buffer.destroy()
        for name in NOT_ABOUT_EXPERTS:
            for call in (lambda: getattr(buffer, name)(x), lambda: getattr(deep_ep.ElasticBuffer, name)(64, num_ranks=1)):
                with pytest.raises(NotImplementedError, match=rf"ElasticBuffer\.{name}:"):
                    call()
        sums, _, _ = buffer.combine(found, handle)
        assert torch.equal(sums, x * torch.tensor([[1], [1], [0]]))

    on_threads(1, body)
