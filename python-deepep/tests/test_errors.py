"""What is refused, and how; ranks that are left out; what callers ask before they begin."""

from __future__ import annotations

import importlib.resources
import os
from typing import Any

import pytest
import torch
import torch.distributed as dist

import deep_ep
import deep_ep.utils
import ferry
from launch import on_processes, on_threads
from oracle import Case, encoded


def alone(body: Any) -> None:
    on_threads(1, lambda group, rank, ranks: body(deep_ep.Buffer(group, enable_shrink=True)))


def layout_of(buffer: deep_ep.Buffer, ids: torch.Tensor, experts: int) -> dict[str, Any]:
    per_rank, _, per_expert, in_rank, _ = buffer.get_dispatch_layout(ids, experts)
    return {"num_tokens_per_rank": per_rank, "num_tokens_per_expert": per_expert, "is_token_in_rank": in_rank}


X, IDS = torch.ones((3, 128), dtype=torch.bfloat16), torch.tensor([[0, 1], [2, -1], [3, 0]])


def test_type_checkers_find_its_types() -> None:
    assert (importlib.resources.files("deep_ep") / "py.typed").is_file()


def test_a_buffer_needs_ranks() -> None:
    with pytest.raises(ValueError, match="neither group nor comm"):
        deep_ep.Buffer()


def test_arguments_that_are_not_known() -> None:
    def body(buffer: deep_ep.Buffer) -> None:
        given = {"topk_idx": IDS, **layout_of(buffer, IDS, 4)}
        buffer.dispatch(X, **given, x_global_scale=None, overlap=False, num_sms=0, extra=(), names=[], sizes={},
                        scale=torch.empty(0))
        buffer.get_dispatch_layout(IDS, 4, shiny=None)
        buffer.clean_low_latency_buffer(4, 128, 4, shiny=False)
        with pytest.raises(NotImplementedError, match="get_dispatch_layout.shiny="):
            buffer.get_dispatch_layout(IDS, 4, shiny=True)
        with pytest.raises(NotImplementedError, match="dispatch.use_nvfp4="):
            buffer.dispatch(X, **given, use_nvfp4=True)
        with pytest.raises(NotImplementedError, match="low_latency_dispatch.x_global_scale="):
            buffer.low_latency_dispatch(X, IDS, 4, 4, x_global_scale=torch.ones(1))
        _, _, handle, _, _ = buffer.low_latency_dispatch(X, IDS, 4, 4)
        with pytest.raises(NotImplementedError, match="low_latency_combine.overlap="):
            buffer.low_latency_combine(torch.zeros((4, 4, 128), dtype=torch.bfloat16), IDS, torch.ones((3, 2)), handle,
                                       overlap=True)
        with pytest.raises(ValueError, match="combine_wait_recv_cost_stats is torch.int32"):
            buffer.low_latency_combine(torch.zeros((4, 4, 128), dtype=torch.bfloat16), IDS, torch.ones((3, 2)), handle,
                                       combine_wait_recv_cost_stats=torch.zeros(1, dtype=torch.int32))

    alone(body)
    with pytest.raises(NotImplementedError, match="Buffer.shiny="):
        deep_ep.Buffer(None, shiny=True)


def test_a_tensor_without_elements_asks_for_nothing() -> None:
    """As None does: statistics that nobody wants, and arguments of other versions."""
    none = torch.empty(0)

    def body(group: Any, rank: int, ranks: int) -> None:
        buffer = deep_ep.Buffer(group)
        rows, _, handle, _, _ = buffer.low_latency_dispatch(X, IDS, 4, 4, none, none, use_fp8=False, x_global_scale=none)
        sums, _, _ = buffer.low_latency_combine(rows, IDS, torch.ones((3, 2)), handle, combine_wait_recv_cost_stats=none,
                                                overlap=none)
        assert torch.equal(sums[:1], 2 * X[:1])
        elastic = deep_ep.ElasticBuffer(group, num_max_tokens_per_rank=4, shiny=none)
        found = elastic.dispatch(X, IDS, cumulative_local_expert_recv_stats=none, num_experts=4, shiny=none)[0]
        assert torch.equal(found, X)

    on_threads(1, body)


def test_what_dispatch_refuses() -> None:
    def body(buffer: deep_ep.Buffer) -> None:
        layout = layout_of(buffer, IDS, 4)
        weights = torch.ones((3, 2))
        codes, scales = encoded(X)
        for match, call in {
                "num_tokens_per_expert is None": lambda: buffer.dispatch(X, topk_idx=IDS),
                "neither topk_idx nor is_token_in_rank": lambda: buffer.dispatch(
                    X, num_tokens_per_expert=layout["num_tokens_per_expert"]),
                "topk_weights is given without topk_idx": lambda: buffer.dispatch(X, topk_weights=weights, **layout),
                r"x has shape \[128\]": lambda: buffer.dispatch(X[0], topk_idx=IDS, **layout),
                "x is torch.float8_e4m3fn with scales torch.float64": lambda: buffer.dispatch(
                    (codes, scales.double()), topk_idx=IDS, **layout),
                r"x has scales \[3, 2\]": lambda: buffer.dispatch(
                    (codes, scales.repeat(1, 2)), topk_idx=IDS, **layout),
                "must be a multiple of 64": lambda: buffer.dispatch(X[:, :3].float(), topk_idx=IDS, **layout),
                "x has 72 columns": lambda: buffer.dispatch(X[:, :72], topk_idx=IDS, **layout),
                "topk_idx is": lambda: buffer.dispatch(X, topk_idx=IDS[:2], **layout),
                "allocate_on_comm_stream": lambda: buffer.dispatch(X, topk_idx=IDS, allocate_on_comm_stream=True, **layout),
        }.items():
            with pytest.raises(ValueError, match=match):
                call()
        rows, _, _, _, handle, _ = buffer.dispatch(X, topk_idx=IDS, topk_weights=weights, **layout)
        for match, call in {
                "topk_idx or topk_weights is given with a handle": lambda: buffer.dispatch(X, handle, topk_idx=IDS),
                "handle": lambda: buffer.dispatch(X[:2], handle=handle),
                r"x has shape \[2, 128\]": lambda: buffer.combine(rows[:2], handle),
                r"topk_weights has shape \[3, 3\]": lambda: buffer.combine(rows, handle, topk_weights=torch.ones((3, 3))),
        }.items():
            with pytest.raises(ValueError, match=match):
                call()
        with pytest.raises(TypeError, match="handle is <class 'tuple'>"):
            buffer.combine(rows, (1, 2))
        sums, _, _ = buffer.combine(rows, handle)  # the buffer goes on
        assert torch.equal(sums, X)

    alone(body)


def test_what_the_low_latency_mode_refuses() -> None:
    def body(buffer: deep_ep.Buffer) -> None:
        for match, call in {
                "x of rank 0 has 3 rows.* = 2": lambda: buffer.low_latency_dispatch(X, IDS, 2, 4),
                "use_ue8m0": lambda: buffer.low_latency_dispatch(X, IDS, 4, 4, use_ue8m0=True),
                "x is torch.float32; it must be torch.bfloat16, ": lambda: buffer.low_latency_dispatch(
                    X.float(), IDS, 4, 4, use_fp8=False),
                "x is torch.float16; it must be torch.bfloat16, ": lambda: buffer.low_latency_dispatch(X.half(), IDS, 4, 4),
                "only one of them": lambda: buffer.low_latency_dispatch(X, IDS, 4, 4, async_finish=True,
                                                                        return_recv_hook=True),
        }.items():
            with pytest.raises(ValueError, match=match):
                call()
        (rows, _), _, handle, _, _ = buffer.low_latency_dispatch(X, IDS, 4, 4)
        y = torch.zeros(rows.shape, dtype=torch.bfloat16)
        for match, call in {
                r"x has shape \[3, 4, 128\]": lambda: buffer.low_latency_combine(y[:3], IDS, torch.ones((3, 2)), handle),
                "zero_copy": lambda: buffer.low_latency_combine(y, IDS, torch.ones((3, 2)), handle, zero_copy=True),
                "topk_weights": lambda: buffer.low_latency_combine(y, IDS, torch.ones((2, 2)), handle),
        }.items():
            with pytest.raises(ValueError, match=match):
                call()

    alone(body)


def test_masks_need_enable_shrink() -> None:
    def body(group: Any, rank: int, ranks: int) -> None:
        buffer = deep_ep.Buffer(group)
        for call in (lambda: buffer.low_latency_update_mask_buffer(0, True), buffer.low_latency_clean_mask_buffer,
                     lambda: buffer.low_latency_query_mask_buffer(torch.zeros(1, dtype=torch.int32)), buffer.destroy):
            with pytest.raises(RuntimeError, match="enable_shrink=True|explicitly_destroy=True"):
                call()

    on_threads(1, body)


def step(buffer: deep_ep.Buffer, case: Case, present: list[int]) -> None:
    """One round among these ranks: what goes to others is lost."""
    x, ids, weights = case.inputs(buffer.rank)
    found, counts, handle, _, _ = buffer.low_latency_dispatch(x, ids, case.tokens, case.experts, use_fp8=False)
    of_experts = [int(sum(case.expert_counts(source)[buffer.rank * case.local + e] for source in present))
                  for e in range(case.local)]
    assert counts.tolist() == of_experts
    sums, _, _ = buffer.low_latency_combine(found.clone(), ids, weights, handle)
    kept = torch.zeros_like(ids, dtype=torch.bool)
    for rank in present:
        kept |= (ids >= 0) & (ids // case.local == rank)
    expected = x.float() * (weights * kept).sum(1, keepdim=True)
    torch.testing.assert_close(sums.float(), expected, rtol=2**-6, atol=1e-2)


def test_a_rank_is_masked_and_comes_back() -> None:
    def body(group: Any, rank: int, ranks: int) -> None:
        buffer = deep_ep.Buffer(group, low_latency_mode=True, enable_shrink=True)
        case, status = Case(ranks, seed=1), torch.zeros(ranks, dtype=torch.int32)
        step(buffer, case, [0, 1, 2])
        group.barrier()
        if rank != 1:
            buffer.low_latency_update_mask_buffer(1, True)
            buffer.low_latency_query_mask_buffer(status)
            assert status.tolist() == [0, 1, 0]
            step(buffer, case, [0, 2])
        group.barrier()
        buffer.low_latency_clean_mask_buffer()
        buffer.low_latency_query_mask_buffer(status)
        assert status.tolist() == [0, 0, 0]
        step(buffer, case, [0, 1, 2])

    on_threads(3, body)


def test_a_rank_that_does_not_come_is_masked() -> None:
    def body(group: Any, rank: int, ranks: int) -> None:
        case, status = Case(ranks, seed=1), torch.zeros(ranks, dtype=torch.int32)
        buffer = deep_ep.Buffer(group, low_latency_mode=True, enable_shrink=True)
        buffer._ranks.deadline = 1.0
        step(buffer, case, [0, 1, 2])
        if rank == 1:
            return
        with pytest.raises(ferry.PeerMissing, match=r"\. With enable_shrink the next low-latency call goes on") as error:
            step(buffer, case, [0, 1, 2])
        assert error.value.rank == 1 and "mask names" not in str(error.value)
        buffer.low_latency_query_mask_buffer(status)
        assert status.tolist() == [0, 1, 0]
        step(buffer, case, [0, 2])

    on_threads(3, body)


def test_a_rank_whose_hook_is_never_called_is_masked() -> None:
    """The first half of the next call may find it."""
    def body(group: Any, rank: int, ranks: int) -> None:
        case, status = Case(ranks, seed=1), torch.zeros(ranks, dtype=torch.int32)
        buffer = deep_ep.Buffer(group, low_latency_mode=True, enable_shrink=True)
        buffer._ranks.deadline = 1.0
        x, ids, weights = case.inputs(rank)
        found, _, handle, _, _ = buffer.low_latency_dispatch(x, ids, case.tokens, case.experts, use_fp8=False)
        given = (found.clone(), ids, weights, handle)
        _, _, hook = buffer.low_latency_combine(*given, return_recv_hook=True)
        if rank == 1:
            return
        hook()
        with pytest.raises(ferry.PeerMissing) as error:
            buffer.low_latency_combine(*given, return_recv_hook=True)[2]()
        assert error.value.rank == 1
        buffer.low_latency_query_mask_buffer(status)
        assert status.tolist() == [0, 1, 0]
        step(buffer, case, [0, 2])

    on_threads(3, body)


def test_a_hook_that_raised_raises_again() -> None:
    def body(group: Any, rank: int, ranks: int) -> None:
        case = Case(ranks, seed=1)
        buffer = deep_ep.Buffer(group, low_latency_mode=True, enable_shrink=True)
        buffer._ranks.deadline = 1.0
        x, ids, weights = case.inputs(rank)
        found, _, handle, _, _ = buffer.low_latency_dispatch(x, ids, case.tokens, case.experts, use_fp8=False)
        if rank == 1:
            return
        _, _, hook = buffer.low_latency_combine(found.clone(), ids, weights, handle, return_recv_hook=True)
        for _ in range(2):
            with pytest.raises(ferry.PeerMissing) as error:
                hook()
            assert error.value.rank == 1

    on_threads(3, body)


def test_what_callers_ask_before_they_begin() -> None:
    assert deep_ep.topk_idx_t == torch.int64
    assert deep_ep.Buffer.is_sm90_compiled()
    for ranks in (2, 3, 160):
        for config in (deep_ep.Buffer.get_dispatch_config(ranks), deep_ep.Buffer.get_combine_config(ranks)):
            assert config.num_sms == deep_ep.Buffer.num_sms
            assert config.get_nvl_buffer_size_hint(14336, ranks) > 0
            assert (config.get_rdma_buffer_size_hint(14336, ranks) > 0) == (ranks > 8)
    assert deep_ep.Buffer.get_low_latency_rdma_size_hint(128, 7168, 8, 256) % 128 == 0
    with pytest.raises(ValueError, match="must be even"):
        deep_ep.Buffer.set_num_sms(3)
    before = deep_ep.Buffer.num_sms
    deep_ep.Buffer.set_num_sms(24)
    assert deep_ep.Buffer.get_dispatch_config(2).num_sms == 24
    deep_ep.Buffer.set_num_sms(before)

    def body(buffer: deep_ep.Buffer) -> None:
        assert buffer.runtime is not None and buffer.runtime.is_available() and buffer.runtime.get_num_rdma_ranks() == 1
        assert buffer.get_local_buffer_tensor(torch.uint8).zero_().numel() == 0
        assert buffer.get_local_buffer_tensor(torch.int32, torch.Size((2, 3)), use_rdma_buffer=True).shape == (2, 3)
        assert buffer.get_comm_stream() is not None

    alone(body)


def test_events() -> None:
    seen = []
    event = deep_ep.Buffer.capture()
    assert isinstance(event, deep_ep.utils.EventOverlap) and isinstance(event.event, deep_ep.utils.EventHandle)
    event.register_hook_after_wait(lambda: seen.append(1))
    with event:
        assert seen == []
    assert seen == [1]
    kept = deep_ep.EventOverlap(deep_ep.EventHandle(), (X,))
    with kept(release_handle=True):
        assert kept.extra_tensors is not None
    assert kept.event is None and kept.extra_tensors is None
    deep_ep.EventOverlap().current_stream_wait()
    event.register_hook_after_wait(lambda: None)
    with pytest.raises(RuntimeError, match="register_hook_after_wait was called twice"):
        event.register_hook_after_wait(lambda: None)


def test_without_tokens_and_under_inference_mode() -> None:
    def body(group: Any, rank: int, ranks: int) -> None:
        buffer = deep_ep.Buffer(group)
        with torch.inference_mode():
            for tokens in (0, 3 * rank):
                ids = torch.zeros((tokens, 2), dtype=torch.int64) + torch.tensor([1, 4])
                x = torch.full((tokens, 64), 2.0, dtype=torch.bfloat16)
                rows, row_ids, weights, numbers, handle, _ = buffer.dispatch(
                    x, topk_idx=ids, topk_weights=torch.ones((tokens, 2)), **layout_of(buffer, ids, 6))
                came = rows.shape[0]
                assert rows.shape == (came, 64) and row_ids.shape == weights.shape == (came, 2) and numbers[1] == came
                sums, home, _ = buffer.combine(rows, handle, topk_weights=weights)
                assert torch.equal(sums, x * 2) and torch.equal(home, torch.ones((tokens, 2)))
                found, counts, kept, _, _ = buffer.low_latency_dispatch(x, ids, 8, 6, use_fp8=False)
                sums, _, _ = buffer.low_latency_combine(found.clone(), ids, torch.ones((tokens, 2)), kept)
                assert torch.equal(sums, x * 2)

    on_threads(2, body)


def test_tensors_of_autograd() -> None:
    def body(buffer: deep_ep.Buffer) -> None:
        x = X.clone().requires_grad_()
        weights = torch.ones((3, 2), requires_grad=True)
        rows, _, _, _, handle, _ = buffer.dispatch(x, topk_idx=IDS, topk_weights=weights, **layout_of(buffer, IDS, 4))
        sums, home, _ = buffer.combine(rows.requires_grad_(), handle, topk_weights=torch.ones((3, 2), requires_grad=True))
        assert torch.equal(sums, X) and torch.equal(home, torch.ones((3, 2)))

    alone(body)


def apart(world: Any, rank: int, ranks: int) -> None:
    os.environ["FERRY_DEEPEP_DEADLINE"] = "2"
    other = dist.new_group([0, 1])
    with pytest.raises(ferry.PeerMissing, match="group"):
        deep_ep.Buffer(other if rank == 0 else world)


def test_groups_that_differ_end_at_the_deadline() -> None:
    """Not after gloo's 30 minutes."""
    on_processes(2, apart)
