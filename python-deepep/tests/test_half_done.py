"""What is half done: no memory for the rows, a second half that cannot fill what it was given, a rank that is masked."""

from __future__ import annotations

from typing import Any, Callable

import pytest
import torch

import deep_ep
import deep_ep.elastic
import ferry
from launch import on_threads

X, IDS, WEIGHTS = torch.ones((4, 128), dtype=torch.bfloat16), torch.tensor([[0, 1]] * 4), torch.ones((4, 2))


def normal(buffer: deep_ep.Buffer) -> torch.Tensor:
    per_rank, _, per_expert, in_rank, _ = buffer.get_dispatch_layout(IDS, 2)
    rows, _, _, _, handle, _ = buffer.dispatch(X, topk_idx=IDS, topk_weights=WEIGHTS, num_tokens_per_rank=per_rank,
                                               num_tokens_per_expert=per_expert, is_token_in_rank=in_rank)
    return buffer.combine(rows, handle)[0]


def elastic(buffer: deep_ep.ElasticBuffer) -> torch.Tensor:
    rows, _, _, handle, _ = buffer.dispatch(X, IDS, WEIGHTS, num_experts=2)
    return buffer.combine(rows, handle)[0]


@pytest.mark.parametrize("kind", ["normal", "elastic"])
def test_without_memory_for_the_rows_the_buffer_goes_on(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: Any, **__: Any) -> Any:
        raise torch.OutOfMemoryError("none")

    def body(group: Any, rank: int, ranks: int) -> None:
        step: Callable[[Any], torch.Tensor] = normal if kind == "normal" else elastic
        buffer: Any = deep_ep.Buffer(group) if kind == "normal" else deep_ep.ElasticBuffer(group, num_max_tokens_per_rank=4)
        expected = step(buffer)
        group.barrier()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(deep_ep._streams.Call, "empty", none)
            with pytest.raises(torch.OutOfMemoryError):
                if kind == "normal":
                    layout = {"num_tokens_per_expert": torch.tensor([4, 4], dtype=torch.int32)}
                    buffer.dispatch(X, topk_idx=IDS, topk_weights=WEIGHTS, **layout)
                else:
                    step(buffer)
            group.barrier()
        group.barrier()
        assert torch.equal(step(buffer), expected)

    on_threads(1, body)


def test_what_a_hook_could_not_fill_is_refused_before_anything_is_sent() -> None:
    def body(group: Any, rank: int, ranks: int) -> None:
        buffer = deep_ep.Buffer(group)
        for halved in (False, True):
            more: dict[str, Any] = {"use_fp8": False, "return_recv_hook": halved}
            for name, match, given in (
                    ("cumulative_local_expert_recv_stats", r"is torch.int64 \[2\]", torch.zeros(2, dtype=torch.int64)),
                    ("cumulative_local_expert_recv_stats", r"\[3\].*\[2\]", torch.zeros(3, dtype=torch.int32)),
                    ("dispatch_wait_recv_cost_stats", r"\[2\].*\[1\]", torch.zeros(2, dtype=torch.int64))):
                with pytest.raises(ValueError, match=f"{name} is.*{match}" if match[0] == "\\" else f"{name} {match}"):
                    buffer.low_latency_dispatch(X, IDS, 4, 2, **more, **{name: given})
            rows, counts, handle, _, hook = buffer.low_latency_dispatch(X, IDS, 4, 2, **more)
            if hook is not None:
                hook()
            assert counts.tolist() == [4, 4]
            given_back = (rows.clone(), IDS, WEIGHTS, handle)
            for match, wrong in {
                    r"out is torch.bfloat16 \[3, 128\]": {"out": torch.empty((3, 128), dtype=torch.bfloat16)},
                    r"out is torch.float32": {"out": torch.empty((4, 128))},
                    r"strides \[256, 2\]": {"out": torch.empty((4, 256), dtype=torch.bfloat16)[:, ::2]},
                    "combine_wait_recv_cost_stats is torch.int32": {
                        "combine_wait_recv_cost_stats": torch.zeros(1, dtype=torch.int32)}}.items():
                with pytest.raises(ValueError, match=match):
                    buffer.low_latency_combine(*given_back, return_recv_hook=halved, **wrong)
            out = torch.empty((4, 128), dtype=torch.bfloat16)
            sums, _, hook = buffer.low_latency_combine(*given_back, return_recv_hook=halved, out=out)
            if hook is not None:
                hook()
            assert sums is out and torch.equal(sums, X * 2)

    on_threads(1, body)


def test_a_combine_takes_bf16_only() -> None:
    def body(group: Any, rank: int, ranks: int) -> None:
        buffer, other = deep_ep.Buffer(group), deep_ep.ElasticBuffer(group, num_max_tokens_per_rank=4)
        rows, _, _, _, handle, _ = buffer.dispatch(
            X, topk_idx=IDS, topk_weights=WEIGHTS, num_tokens_per_expert=torch.tensor([4, 4], dtype=torch.int32))
        found, _, _, left, _ = other.dispatch(X, IDS, WEIGHTS, num_experts=2)
        padded, _, kept, _, _ = buffer.low_latency_dispatch(X, IDS, 4, 2, use_fp8=False)
        for dtype in (torch.float16, torch.float32):
            for call in (lambda: buffer.combine(rows.to(dtype), handle), lambda: other.combine(found.to(dtype), left),
                         lambda: buffer.low_latency_combine(padded.to(dtype), IDS, WEIGHTS, kept)):
                with pytest.raises(ValueError, match=f"x is {dtype}; it must be torch.bfloat16"):
                    call()

    on_threads(1, body)


@pytest.mark.parametrize("calls", [False, True])
@pytest.mark.parametrize("sends", [False, True])
def test_a_rank_is_masked_before_a_hook_is_called(sends: bool, calls: bool) -> None:
    """Whether it sent its tokens or not, the others go on without it."""
    def body(group: Any, rank: int, ranks: int) -> None:
        buffer = deep_ep.Buffer(group, low_latency_mode=True, enable_shrink=True)
        buffer._ranks.deadline = 1.0
        given: tuple[Any, ...] = (X, IDS, 4, 3)
        buffer.low_latency_dispatch(*given, use_fp8=False)
        if rank == 2 and not sends:
            return
        _, counts, _, _, hook = buffer.low_latency_dispatch(*given, use_fp8=False, return_recv_hook=True)
        assert hook is not None
        if rank == 2:
            return
        buffer.low_latency_update_mask_buffer(2, True)
        if sends:
            assert counts.tolist() == [12]
        if calls and sends:
            hook()
        elif calls:
            with pytest.raises(ferry.PeerMissing):
                hook()
        for _ in range(2):
            counts = buffer.low_latency_dispatch(*given, use_fp8=False)[1]
            assert counts.tolist() == [8]

    on_threads(3, body)


@pytest.mark.parametrize("mode", ["whole", "hook", "later", "by_source", "expanded", "without a wait"])
def test_all_ranks_refuse_a_dispatch_where_one_has_too_many_tokens(mode: str) -> None:
    """None waits for its deadline, and the next dispatch is as ever. `later`: the hook is not called."""
    def body(group: Any, rank: int, ranks: int) -> None:
        buffer, other = deep_ep.Buffer(group), deep_ep.ElasticBuffer(group, num_max_tokens_per_rank=4)

        def dispatch(tokens: int, calls_hook: bool = True) -> list[int]:
            x, ids = X[:1].repeat(tokens, 1), IDS[:1].repeat(tokens, 1)
            if mode in ("whole", "hook", "later"):
                _, counts, _, _, hook = buffer.low_latency_dispatch(x, ids, 4, 2, return_recv_hook=mode != "whole")
                if hook is not None and calls_hook:
                    hook()
                return counts.tolist()
            handle = other.dispatch(x, ids, num_experts=2, do_expand=mode == "expanded",
                                    do_cpu_sync=mode != "without a wait")[3]
            return handle.num_unaligned_recv_tokens_per_expert.tolist()

        for _ in range(2):
            if mode == "later":
                dispatch(5 if rank == 1 else 2, calls_hook=False)
            told = f"rank {rank}: x of rank 1 has 5 rows; the limit is num_max_tokens_per_rank = 4. All ranks refuse"
            with pytest.raises(ferry.InvalidArgument, match=told):
                dispatch(5 if rank == 1 and mode != "later" else 2)
            assert dispatch(2 + rank) == [5]

    on_threads(2, body)


@pytest.mark.parametrize("raises", [False, True])
def test_a_handle_that_its_hook_has_not_written_is_refused(raises: bool) -> None:
    """Its memory may hold an older handle, which would route the rows elsewhere without a word."""
    def body(group: Any, rank: int, ranks: int) -> None:
        buffer = deep_ep.Buffer(group)

        def whole() -> torch.Tensor:
            rows, _, handle, _, _ = buffer.low_latency_dispatch(X, IDS, 4, 2, use_fp8=False)
            return buffer.low_latency_combine(rows, IDS, WEIGHTS, handle)[0]

        sums = whole()
        if raises and rank == 1:  # with more tokens than a rank may have
            with pytest.raises(ferry.InvalidArgument, match="All ranks refuse"):
                buffer.low_latency_dispatch(torch.cat([X, X]), torch.cat([IDS, IDS]), 4, 2, use_fp8=False)
        else:
            rows, _, handle, _, hook = buffer.low_latency_dispatch(X, IDS, 4, 2, use_fp8=False, return_recv_hook=True)
            with pytest.raises(ValueError, match="handle is of a dispatch whose hook was not called; call it first"):
                buffer.low_latency_combine(rows, IDS, WEIGHTS, handle)
            if raises:
                with pytest.raises(ferry.InvalidArgument, match="All ranks refuse"):
                    hook()
                with pytest.raises(ValueError, match="handle is of a dispatch whose hook raised.*All ranks refuse"):
                    buffer.low_latency_combine(rows, IDS, WEIGHTS, handle)
            else:
                hook()
                assert torch.equal(buffer.low_latency_combine(rows, IDS, WEIGHTS, handle)[0], sums)
        assert torch.equal(whole(), sums)  # the buffer goes on

    on_threads(2, body)
