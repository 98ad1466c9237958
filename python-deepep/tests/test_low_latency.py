"""The low-latency mode against the oracle."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import deep_ep
from launch import on_processes, on_threads
from oracle import Case, decoded, encoded, packed

FORMATS = ({"use_fp8": False}, {}, {"round_scale": True}, {"round_scale": True, "use_ue8m0": True})


def expected_rows(case: Case, rank: int, expert: int) -> list[tuple[int, int]]:
    """(source, token) of each row of a local expert."""
    number = rank * case.local + expert
    return [(source, token) for source in range(case.ranks)
            for token in (case.inputs(source)[1] == number).any(1).nonzero().flatten().tolist()]


def as_sent(x: torch.Tensor, use_fp8: bool = True, round_scale: bool = False, use_ue8m0: bool = False) -> Any:
    if not use_fp8:
        return x
    codes, scales = encoded(x, round_scale)
    return codes, packed(scales) if use_ue8m0 else scales


def bits(row: torch.Tensor) -> bytes:
    return torch.empty(row.shape, dtype=row.dtype).copy_(row).view(torch.uint8).numpy().tobytes()


def check_rows(case: Case, rank: int, found: Any, counts: torch.Tensor, handle: Any, kind: dict[str, bool],
               max_tokens: int) -> None:
    every = case.ranks * max_tokens
    sent = [as_sent(case.inputs(source)[0], **kind) for source in range(case.ranks)]
    source_tokens, ranges = handle[0], handle[1]
    assert tuple(handle)[2:] == (max_tokens, case.hidden, case.experts) and len(handle) == 5
    assert counts.tolist() == case.received(rank) and counts.dtype == torch.int32
    assert ranges.dtype == torch.int64 and ranges.shape == (case.local, case.ranks)
    for expert in range(case.local):
        rows = expected_rows(case, rank, expert)
        for part in range(2 if isinstance(found, tuple) else 1):
            tensor = found[part] if isinstance(found, tuple) else found
            assert tensor.shape[:2] == (case.local, every)
            for row, (source, token) in enumerate(rows):
                one = sent[source][part] if isinstance(found, tuple) else sent[source]
                assert bits(tensor[expert, row]) == bits(one[token])
        assert source_tokens[expert][:len(rows)].view(-1, 1).flatten().tolist() == [token for _, token in rows]
        for source in range(case.ranks):
            begin, count = int(ranges[expert, source] >> 32), int(ranges[expert, source] & (2**32 - 1))
            assert [place for place, row in enumerate(rows) if row[0] == source] == list(range(begin, begin + count))
    if isinstance(found, tuple):
        assert found[0].dtype == torch.float8_e4m3fn and found[1].stride()[1:] == (1, every if found[1].shape[2] > 1 else 1)


def outputs_of_experts(case: Case, rank: int, max_tokens: int) -> torch.Tensor:
    made = torch.Generator().manual_seed(77 + rank)
    return torch.randn((case.local, case.ranks * max_tokens, case.hidden), generator=made).to(torch.bfloat16)


def sums_of(case: Case, rank: int, max_tokens: int) -> torch.Tensor:
    x, ids, weights = case.inputs(rank)
    sums = torch.zeros(x.shape)
    outputs = [outputs_of_experts(case, other, max_tokens) for other in range(case.ranks)]
    for token in range(x.shape[0]):
        for k, expert in enumerate(ids[token].tolist()):
            if expert >= 0:
                other, local = divmod(expert, case.local)
                row = expected_rows(case, other, local).index((rank, token))
                sums[token] += weights[token, k] * outputs[other][local, row].float()
    return sums


def a_step(group: Any, rank: int, ranks: int, seed: int) -> None:
    case = Case(ranks, seed=seed, hidden=512)
    buffer = deep_ep.Buffer(group, 0, 1 << 20, low_latency_mode=True, num_qps_per_rank=1, explicitly_destroy=True)
    x, ids, weights = case.inputs(rank)
    most = 20
    y = outputs_of_experts(case, rank, most)
    expected = sums_of(case, rank, most)
    buffer.clean_low_latency_buffer(most, case.hidden, case.experts)
    totals = torch.zeros(case.local, dtype=torch.int32)
    waits = torch.zeros(ranks, dtype=torch.int64)
    for number, kind in enumerate(FORMATS):
        halved = number % 2 == 1
        call = {"return_recv_hook": halved, "async_finish": not halved}

        def dispatch() -> Any:
            found, counts, handle, event, hook = buffer.low_latency_dispatch(
                x, ids, most, case.experts, totals, waits, **kind, **call)
            hook() if halved else event.current_stream_wait()
            return found, counts, handle

        dispatch()  # never combined
        found, counts, handle = dispatch()
        second = dispatch()
        check_rows(case, rank, found, counts, handle, kind, most)
        check_rows(case, rank, *second, kind, most)
        assert totals.tolist() == [3 * (number + 1) * count for count in case.received(rank)]
        for zero_copy in (False, True):
            if zero_copy:
                buffer.get_next_low_latency_combine_buffer(handle)[:, :, :] = y
            out = torch.empty((x.shape[0], case.hidden), dtype=torch.bfloat16)
            sums, event, hook = buffer.low_latency_combine(
                torch.zeros_like(y) if zero_copy else y, ids, weights, handle, zero_copy=zero_copy, use_logfmt=zero_copy,
                out=None if number == 0 else out, combine_wait_recv_cost_stats=waits, **call)
            hook() if halved else event.current_stream_wait()
            assert number == 0 or sums is out
            torch.testing.assert_close(sums.float(), expected, rtol=2**-7, atol=1e-5)
    assert bool((waits >= 0).all())
    buffer.destroy()


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("seed", [0, 2])
def test_threads(ranks: int, seed: int) -> None:
    on_threads(ranks, a_step, seed)


@pytest.mark.parametrize("ranks", [2, 3])
def test_processes(ranks: int) -> None:
    on_processes(ranks, a_step, 2)


def test_two_batches_half_done() -> None:
    """A second dispatch, and a second combine, begin before the hooks of the first are called."""
    def body(group: Any, rank: int, ranks: int) -> None:
        buffer = deep_ep.Buffer(group, low_latency_mode=True)
        cases = [Case(ranks, seed=seed, hidden=128) for seed in (0, 1)]
        most = 17
        begun = [buffer.low_latency_dispatch(case.inputs(rank)[0], case.inputs(rank)[1], most, case.experts,
                                             use_fp8=False, return_recv_hook=True) for case in cases]
        for one in begun:
            one[4]()
            one[4]()  # a second time does nothing
        combined = []
        for case, (found, counts, handle, _, _) in zip(cases, begun):
            check_rows(case, rank, found, counts, handle, {"use_fp8": False}, most)
            combined.append(buffer.low_latency_combine(outputs_of_experts(case, rank, most), case.inputs(rank)[1],
                                                       case.inputs(rank)[2], handle, return_recv_hook=True))
        for case, (sums, _, hook) in reversed(list(zip(cases, combined))):
            hook()
            torch.testing.assert_close(sums.float(), sums_of(case, rank, most), rtol=2**-7, atol=1e-5)

    on_threads(2, body)


def test_both_modes_on_one_buffer() -> None:
    def body(group: Any, rank: int, ranks: int) -> None:
        buffer = deep_ep.Buffer(group, 1 << 20, 1 << 20, low_latency_mode=True)
        case = Case(ranks, hidden=128)
        x, ids, weights = case.inputs(rank)
        for _ in range(3):
            per_rank, _, per_expert, in_rank, _ = buffer.get_dispatch_layout(ids, case.experts)
            normal = buffer.dispatch(x, num_tokens_per_rank=per_rank, is_token_in_rank=in_rank,
                                     num_tokens_per_expert=per_expert, topk_idx=ids, topk_weights=weights)
            buffer.clean_low_latency_buffer(20, case.hidden, case.experts)
            found, counts, handle, _, _ = buffer.low_latency_dispatch(x, ids, 20, case.experts, use_fp8=True)
            check_rows(case, rank, found, counts, handle, {}, 20)
            sums, _, _ = buffer.combine(normal[0], normal[4])
            assert torch.equal(sums.float(), (x.float() * in_rank.sum(1, keepdim=True)).to(torch.bfloat16).float())
            sums, _, _ = buffer.low_latency_combine(outputs_of_experts(case, rank, 20), ids, weights, handle)
            torch.testing.assert_close(sums.float(), sums_of(case, rank, 20), rtol=2**-7, atol=1e-5)

    on_threads(2, body)


def test_rounded_scales_say_what_the_codes_mean() -> None:
    x = torch.randn((5, 512))
    for found in (encoded(x), encoded(x, True)):
        torch.testing.assert_close(decoded(*found), x, rtol=2**-4, atol=1e-2)
    codes, scales = encoded(x, True)
    assert torch.equal(decoded(codes, packed(scales)), decoded(codes, scales))
