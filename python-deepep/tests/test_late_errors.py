"""Errors that a GPU's kernels find, which a later call throws first of all: each comes once, and the buffer goes on.

CPU ranks refuse ahead, so calls of Ferry stand in for those of a GPU.
"""

from __future__ import annotations

from typing import Any, Callable

import pytest
import torch

import deep_ep
import ferry
from launch import on_threads
from test_half_done import IDS, WEIGHTS, X, elastic, normal

BAD_IDS, BAD_SCALE = "topk_ids[0, 0] of an earlier dispatch is 99", "input_scale of an earlier dispatch was 0"
LATE = r"topk_idx\[0, 0\] of an earlier dispatch is 99"


class Findings:
    """What the next calls of these names throw on rank 0, one each, before they do anything."""

    def __init__(self, patch: pytest.MonkeyPatch, *names: str) -> None:
        self.untold: list[str] = []
        for name in names:
            patch.setattr(ferry.Exchange, name, self._told_first(getattr(ferry.Exchange, name)))

    def _told_first(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def told_first(exchange: ferry.Exchange, *args: Any, **more: Any) -> Any:
            if self.untold and exchange.rank == 0:
                raise ferry.InvalidArgument(f"rank 0: {self.untold.pop(0)}")
            return call(exchange, *args, **more)

        return told_first


@pytest.mark.parametrize("found", [[BAD_IDS], [BAD_IDS, BAD_SCALE]])
@pytest.mark.parametrize("name", ["wait_for_counts", "dispatch_wait"])
@pytest.mark.parametrize("kind", ["normal", "elastic"])
def test_a_dispatch_is_given_up(kind: str, name: str, found: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    findings = Findings(monkeypatch, name)

    def body(group: Any, rank: int, ranks: int) -> None:
        step: Callable[[Any], torch.Tensor] = normal if kind == "normal" else elastic
        buffer: Any = deep_ep.Buffer(group) if kind == "normal" else deep_ep.ElasticBuffer(group, num_max_tokens_per_rank=4)

        def dispatch() -> None:
            if kind == "normal":
                buffer.dispatch(X, topk_idx=IDS, topk_weights=WEIGHTS,
                                num_tokens_per_expert=torch.tensor([4, 4], dtype=torch.int32))
            else:
                buffer.dispatch(X, IDS, WEIGHTS, num_experts=2)

        expected = step(buffer)
        for _ in range(2):
            group.barrier()
            if rank == 0:
                findings.untold += found
                with pytest.raises(ferry.InvalidArgument, match=LATE):
                    dispatch()
            else:
                dispatch()
            assert torch.equal(step(buffer), expected)

    on_threads(2, body)


def test_a_finding_of_a_dispatch_that_all_ranks_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    """More tokens than its exchange has room for make a larger one, which all ranks do together."""
    findings = Findings(monkeypatch, "wait_for_counts")
    many = 100

    def body(group: Any, rank: int, ranks: int) -> None:
        buffer = deep_ep.Buffer(group)
        expected = normal(buffer)
        x, ids, weights = X[:1].repeat(many, 1), IDS[:1].repeat(many, 1), WEIGHTS[:1].repeat(many, 1)
        counts = buffer.get_dispatch_layout(ids, 2)[2]

        def dispatch() -> Any:
            return buffer.dispatch(x, topk_idx=ids, topk_weights=weights, num_tokens_per_expert=counts)[0]

        group.barrier()
        if rank == 0:
            findings.untold.append(BAD_IDS)
            with pytest.raises(ferry.InvalidArgument, match=LATE):
                dispatch()
        else:
            dispatch()
        assert torch.equal(normal(buffer), expected)

    on_threads(2, body)


def low_latency(buffer: deep_ep.Buffer, dispatched: Callable[[Any], None], combined: Callable[[Any], None]) -> torch.Tensor:
    """A step whose hooks are called so."""
    rows, _, handle, _, hook = buffer.low_latency_dispatch(X, IDS, 4, 2, use_fp8=False, return_recv_hook=True)
    dispatched(hook)
    sums, _, hook = buffer.low_latency_combine(rows, IDS, WEIGHTS, handle, return_recv_hook=True)
    combined(hook)
    return sums


def called(hook: Callable[[], None]) -> None:
    hook()


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("name", ["dispatch_wait", "combine_wait"])
def test_a_hook_has_done_its_half(name: str, several: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """So the rows are there, and this rank sends their results, for which the others wait."""
    findings = Findings(monkeypatch, name)

    def body(group: Any, rank: int, ranks: int) -> None:
        buffer = deep_ep.Buffer(group)
        expected = low_latency(buffer, called, called)
        group.barrier()

        def tells(hook: Callable[[], None]) -> None:
            if rank == 0:
                findings.untold += [BAD_IDS, BAD_SCALE] if several else [BAD_IDS]
                with pytest.raises(ferry.InvalidArgument, match=LATE):
                    hook()
                if several:
                    with pytest.raises(ferry.InvalidArgument, match="input_scale"):
                        hook()
            hook()

        hooks = (tells, called) if name == "dispatch_wait" else (called, tells)
        for these in (hooks, (called, called)):
            assert torch.equal(low_latency(buffer, *these), expected)

    on_threads(2, body)


def test_what_a_hook_has_not_told_the_next_dispatch_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it sends anything."""
    findings = Findings(monkeypatch, "dispatch_wait")

    def body(group: Any, rank: int, ranks: int) -> None:
        buffer = deep_ep.Buffer(group)
        hook = buffer.low_latency_dispatch(X, IDS, 4, 2, use_fp8=False, return_recv_hook=True)[4]
        if rank == 0:
            findings.untold.append(BAD_IDS)
            with pytest.raises(ferry.InvalidArgument, match=LATE):
                buffer.low_latency_dispatch(X, IDS, 4, 2, use_fp8=False)
        hook()
        assert buffer.low_latency_dispatch(X, IDS, 4, 2, use_fp8=False)[1].tolist() == [8]

    on_threads(2, body)


def test_a_dispatch_that_all_ranks_refuse_behind_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    findings = Findings(monkeypatch, "dispatch_wait")

    def body(group: Any, rank: int, ranks: int) -> None:
        buffer = deep_ep.Buffer(group)
        x, ids = torch.cat([X, X]), torch.cat([IDS, IDS])
        hook = buffer.low_latency_dispatch(x, ids, 4, 2, use_fp8=False, return_recv_hook=True)[4]
        if rank == 0:
            findings.untold.append(BAD_IDS)
            with pytest.raises(ferry.InvalidArgument, match=LATE):
                hook()
        for _ in range(2):
            with pytest.raises(ferry.InvalidArgument, match="All ranks refuse"):
                hook()
        assert buffer.low_latency_dispatch(X, IDS, 4, 2, use_fp8=False)[1].tolist() == [8]

    on_threads(2, body)


def test_a_mask_leaves_it_to_the_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    findings = Findings(monkeypatch, "dispatch_wait")

    def body(group: Any, rank: int, ranks: int) -> None:
        buffer = deep_ep.Buffer(group, low_latency_mode=True, enable_shrink=True)
        buffer._ranks.deadline = 1.0
        _, counts, _, _, hook = buffer.low_latency_dispatch(X, IDS, 4, 3, use_fp8=False, return_recv_hook=True)
        if rank == 2:
            return
        if rank == 0:
            findings.untold.append(BAD_IDS)
        buffer.low_latency_update_mask_buffer(2, True)
        assert counts.tolist() == [12]
        if rank == 0:
            with pytest.raises(ferry.InvalidArgument, match=LATE):
                hook()
        hook()
        assert buffer.low_latency_dispatch(X, IDS, 4, 3, use_fp8=False)[1].tolist() == [8]

    on_threads(3, body)


def test_only_rows_without_room_are_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    findings = Findings(monkeypatch, "check")

    def body(group: Any, rank: int, ranks: int) -> None:
        buffer = deep_ep.Buffer(group)
        given: dict[str, Any] = {"topk_idx": IDS, "num_tokens_per_expert": torch.tensor([4, 4], dtype=torch.int32)}
        buffer.dispatch(X, **given, num_worst_tokens=8)
        findings.untold.append(BAD_IDS)
        with pytest.raises(ferry.InvalidArgument) as error:
            buffer.dispatch(X, **given, num_worst_tokens=5)
        assert str(error.value).startswith("rank 0: topk_idx[0, 0]") and "num_worst_tokens" not in str(error.value)
        with pytest.raises(ferry.InvalidArgument, match="num_worst_tokens is 3, and more rows came"):
            buffer.dispatch(X, **given, num_worst_tokens=3)

    on_threads(1, body)
