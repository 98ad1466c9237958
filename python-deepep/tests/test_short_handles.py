"""FERRY_DEEPEP_SHORT_HANDLES: a handle has the bytes of what came, where the host knows that; all calls take it."""

from __future__ import annotations

from typing import Any

import pytest

import deep_ep
import test_elastic
import test_normal
from launch import on_threads
from oracle import Case


@pytest.fixture(autouse=True)
def asks_for_short_handles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FERRY_DEEPEP_SHORT_HANDLES", "1")


@pytest.mark.parametrize("with_ids", [True, False])
def test_normal_mode(with_ids: bool) -> None:
    on_threads(3, test_normal.a_step, 2, with_ids)


def test_batches_that_grow() -> None:
    on_threads(3, test_normal.growing)


def test_worst_case() -> None:
    on_threads(2, test_normal.worst)


@pytest.mark.parametrize("allow_multiple_reduction", [True, False])
def test_elastic_buffer(allow_multiple_reduction: bool) -> None:
    on_threads(2, test_elastic.a_step, allow_multiple_reduction)


def normal_bytes(group: Any, rank: int, case: Case, worst: int) -> tuple[int, int]:
    """Of the handle that a dispatch leaves, and of a whole one."""
    buffer = deep_ep.Buffer(group)
    x, ids, weights = case.inputs(rank)
    handle = buffer.dispatch(x, topk_idx=ids, topk_weights=weights, num_worst_tokens=worst,
                             **test_normal.layout_of(buffer, case))[4]
    return handle.routing.data.numel(), handle.routing.family.handle_bytes


def elastic_bytes(group: Any, rank: int, case: Case, do_expand: bool, do_cpu_sync: bool) -> tuple[int, int]:
    buffer = deep_ep.ElasticBuffer(group, num_max_tokens_per_rank=500)
    x, ids, weights = case.inputs(rank)
    handle = buffer.dispatch(x, ids, weights, num_experts=case.experts, do_expand=do_expand, do_cpu_sync=do_cpu_sync)[3]
    return handle.routing.data.numel(), handle.routing.family.handle_bytes


def test_they_are_short_where_the_host_knows_what_came() -> None:
    def body(group: Any, rank: int, ranks: int) -> None:
        case = Case(ranks, tokens=20, hidden=64)
        for is_known, (bytes_left, whole) in {
                (True, "normal"): normal_bytes(group, rank, case, 0),
                (False, "worst"): normal_bytes(group, rank, case, 40),
                **{(is_known, "expanded" if do_expand else "by source"): elastic_bytes(group, rank, case, do_expand, is_known)
                   for is_known in (True, False) for do_expand in (True, False)}}.items():
            assert bytes_left < whole / 2 if is_known[0] else bytes_left == whole, is_known

    on_threads(2, body)


def test_whole_ones_unless_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FERRY_DEEPEP_SHORT_HANDLES")

    def body(group: Any, rank: int, ranks: int) -> None:
        case = Case(ranks, tokens=20, hidden=64)
        for bytes_left, whole in (normal_bytes(group, rank, case, 0), elastic_bytes(group, rank, case, True, True)):
            assert bytes_left == whole

    on_threads(2, body)


def test_another_value_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FERRY_DEEPEP_SHORT_HANDLES", "yes")

    def body(group: Any, rank: int, ranks: int) -> None:
        with pytest.raises(ValueError, match="FERRY_DEEPEP_SHORT_HANDLES is 'yes'; it must be 0 or 1"):
            deep_ep.Buffer(group)

    on_threads(1, body)
