"""Arguments of the wrong kind, calls of a destroyed buffer, and handles that would leave their process."""

from __future__ import annotations

import copy
import functools
import pickle
import warnings
from typing import Any

import numpy as np
import pytest
import torch

import deep_ep
import ferry
from launch import on_threads
from oracle import encoded
from test_errors import IDS, X, alone, layout_of

WEIGHTS = torch.ones((3, 2))
Call = tuple[type[Exception], str, Any]


def refused(calls: list[Call]) -> None:
    for error, match, call in calls:
        with pytest.raises(error, match=match):
            call()


def test_ids_past_the_experts_go_nowhere_until_the_dispatch_refuses_them() -> None:
    def body(group: Any, rank: int, ranks: int) -> None:
        buffer = deep_ep.Buffer(group)
        for experts, in_rank in ((4, [[1, 0], [0, 1], [0, 0]]), (3, [[1, 0], [0, 1], [0, 0]])):
            ids = torch.tensor([[0, experts], [experts - 1, 1 << 40], [-7, experts + 9]])
            found = layout_of(buffer, ids, experts)
            assert found["is_token_in_rank"].tolist() == in_rank and found["num_tokens_per_rank"].tolist() == [1, 1]
            assert found["num_tokens_per_expert"].tolist() == [1] + [0] * (experts - 2) + [1]
            with pytest.raises(ValueError, match=f"{experts}"):
                buffer.dispatch(X, topk_idx=ids, **found)

    on_threads(2, body)


def test_what_is_no_tensor_is_named() -> None:
    def body(buffer: deep_ep.Buffer) -> None:
        layout = layout_of(buffer, IDS, 4)
        given: dict[str, Any] = {"topk_idx": IDS, **layout}
        rows, _, _, _, handle, _ = buffer.dispatch(X, **given)
        found, _, low, _, _ = buffer.low_latency_dispatch(X, IDS, 4, 4, use_fp8=False)
        combine = buffer.low_latency_combine
        refused([
            (ValueError, r"topk_idx has shape \[6\]; .*\[tokens, K\]", lambda: layout_of(buffer, IDS.flatten(), 4)),
            *((ValueError, f"topk_idx is {kind}; it must be torch.int32 or torch.int64",
               lambda kind=kind: layout_of(buffer, IDS.to(kind), 4))
              for kind in (torch.float32, torch.bool, torch.int16, torch.uint8)),
            (TypeError, "topk_idx is None", lambda: layout_of(buffer, None, 4)),  # type: ignore[arg-type]
            (TypeError, r"x is None; it must be a tensor \[tokens, hidden\]", lambda: buffer.dispatch(None, **given)),
            (TypeError, "x is <class 'numpy.ndarray'>", lambda: buffer.dispatch(np.ones((3, 64), np.float32), **given)),
            (TypeError, "the scales of x is <class 'numpy.ndarray'>",
             lambda: buffer.dispatch((encoded(X)[0], np.ones((3, 1))), **given)),
            (ValueError, "x has 3 elements", lambda: buffer.dispatch((X, X, X), **given)),
            (ValueError, r"topk_idx has shape \[6\]", lambda: buffer.dispatch(X, **{**given, "topk_idx": IDS.flatten()})),
            (TypeError, "num_tokens_per_expert is 4", lambda: buffer.dispatch(X, **{**given, "num_tokens_per_expert": 4})),
            (TypeError, "is_token_in_rank is True",
             lambda: buffer.dispatch(X, **{**layout, "is_token_in_rank": True})),
            (ValueError, "is_token_in_rank is torch.int32",
             lambda: buffer.dispatch(X, **{**layout, "is_token_in_rank": layout["is_token_in_rank"].int()})),
            (ValueError, r"is_token_in_rank .*; it must be torch.bool \[tokens, 1\]",
             lambda: buffer.dispatch(X, **{**layout, "is_token_in_rank": torch.ones((3, 2), dtype=torch.bool)})),
            (TypeError, "previous_event is 5; .*EventOverlap", lambda: buffer.dispatch(X, **given, previous_event=5)),
            (ValueError, r"x has strides \[1, 3\]", lambda: buffer.dispatch(torch.ones((64, 3)).t(), **given)),
            (TypeError, "bias is 3; ", lambda: buffer.combine(rows, handle, bias=3)),  # type: ignore[arg-type]
            (TypeError, "bias has 3 elements; ", lambda: buffer.combine(rows, handle, bias=[X, X, X])),
            (TypeError, "bias is 3; ", lambda: buffer.combine(rows, handle, bias=(X, 3))),  # type: ignore[arg-type]
            (TypeError, "config is 24; .*deep_ep.Config", lambda: buffer.dispatch(X, **given, config=24)),
            (TypeError, "config is 24", lambda: buffer.combine(rows, handle, config=24)),  # type: ignore[arg-type]
            (TypeError, "x is None", lambda: buffer.combine(None, handle)),  # type: ignore[arg-type]
            (TypeError, "topk_weights is 1.0", lambda: buffer.combine(rows, handle, 1.0)),  # type: ignore[arg-type]
            (TypeError, "handle is None", lambda: buffer.combine(rows, None)),
            (TypeError, "x is None", lambda: buffer.low_latency_dispatch(None, IDS, 4, 4)),  # type: ignore[arg-type]
            (ValueError, "topk_idx has shape", lambda: buffer.low_latency_dispatch(X, IDS.flatten(), 4, 4)),
            (TypeError, "topk_weights is None", lambda: combine(found, IDS, None, low)),  # type: ignore[arg-type]
            (TypeError, "x is None", lambda: combine(None, IDS, WEIGHTS, low)),  # type: ignore[arg-type]
            (TypeError, "handle is .*NormalHandle", lambda: combine(found, IDS, WEIGHTS, handle, zero_copy=True)),
            (TypeError, "handle is None", lambda: combine(found, IDS, WEIGHTS, None, zero_copy=True)),
            (TypeError, "handle is .*NormalHandle", lambda: buffer.get_next_low_latency_combine_buffer(handle)),
            (TypeError, "handle is None", lambda: buffer.get_next_low_latency_combine_buffer(None)),
        ])
        assert torch.equal(buffer.combine(rows, handle)[0], X)  # the buffer goes on

    alone(body)


def test_numbers_that_are_none_and_nested_tensors_are_named() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it is a prototype
        nested = torch.nested.nested_tensor([X.float()])  # type: ignore[no-untyped-call]

    def body(buffer: deep_ep.Buffer) -> None:
        given: dict[str, Any] = {"topk_idx": IDS, **layout_of(buffer, IDS, 4)}
        refused([
            (ValueError, "num_experts is 0; it must be 1 or more", lambda: layout_of(buffer, IDS, 0)),
            (ValueError, "num_worst_tokens is -1; ", lambda: buffer.dispatch(X, **given, num_worst_tokens=-1)),
            (TypeError, "num_worst_tokens is 1.5; it must be a whole number",
             lambda: buffer.dispatch(X, **given, num_worst_tokens=1.5)),  # type: ignore[arg-type]
            (TypeError, "num_worst_tokens is True", lambda: buffer.dispatch(X, **given, num_worst_tokens=True)),
            (TypeError, "expert_alignment is 'a'",
             lambda: buffer.dispatch(X, **given, expert_alignment="a")),  # type: ignore[arg-type]
            (ValueError, "expert_alignment is 0; ", lambda: buffer.dispatch(X, **given, expert_alignment=0)),
            (ValueError, "num_max_dispatch_tokens_per_rank is 0; ", lambda: buffer.low_latency_dispatch(X, IDS, 0, 4)),
            (TypeError, "num_max_dispatch_tokens_per_rank is 1.5; ",
             lambda: buffer.low_latency_dispatch(X, IDS, 1.5, 4)),  # type: ignore[arg-type]
            (ValueError, "num_experts is 0; ", lambda: buffer.low_latency_dispatch(X, IDS, 4, 0)),
            (TypeError, "x is a nested tensor", lambda: buffer.dispatch(nested, **given)),
            (TypeError, "topk_idx is a nested tensor", lambda: buffer.low_latency_dispatch(X, nested, 4, 4)),
        ])

    alone(body)


def test_what_buffers_ask_beside_their_calls_is_named() -> None:
    """By the argument. Nothing of it is taken: the number of multiprocessors stays."""
    before, hint = deep_ep.Buffer.num_sms, deep_ep.Buffer.get_low_latency_rdma_size_hint

    def body(buffer: deep_ep.Buffer) -> None:
        mask = buffer.low_latency_update_mask_buffer
        refused([
            (TypeError, "rank_to_mask is 'a'; it must be a whole number", lambda: mask("a")),  # type: ignore[arg-type]
            (TypeError, "rank_to_mask is 0.0; ", lambda: mask(0.0)),  # type: ignore[arg-type]
            (ValueError, "rank_to_mask is 1; the ranks are 0 to 0", lambda: mask(1)),
            (TypeError, "new_num_sms is '4'; it must be a whole number",
             lambda: buffer.set_num_sms("4")),  # type: ignore[arg-type]
            (ValueError, "new_num_sms is -2; it must be 0 or more", lambda: buffer.set_num_sms(-2)),
            (TypeError, "num_sms is 'a'; it must be a whole number", lambda: deep_ep.Config("a")),  # type: ignore[arg-type]
            (ValueError, "num_sms is -1; it must be 0 or more", lambda: deep_ep.Config(-1)),
            (TypeError, "^comm is 3; it must be a communicator of mpi4py", lambda: deep_ep.Buffer(comm=3)),
            (TypeError, "num_max_dispatch_tokens_per_rank is '1'; it must be a whole number",
             lambda: hint("1", 7168, 8, 256)),  # type: ignore[arg-type]
            (ValueError, "num_experts is -1; it must be 0 or more", lambda: hint(1, 7168, 8, -1)),
            (TypeError, "hidden is None; ", lambda: deep_ep.ElasticBuffer.get_buffer_size_hint(
                None, 1, None)),  # type: ignore[arg-type]
        ])

    alone(body)
    assert deep_ep.Buffer.num_sms == before


def test_a_mask_is_written_into_what_can_hold_it() -> None:
    def body(buffer: deep_ep.Buffer) -> None:
        for status in (torch.zeros(2, dtype=torch.int32), torch.zeros(1), torch.zeros((1, 1), dtype=torch.int32)):
            with pytest.raises(ValueError, match="mask_status .*; it must be"):
                buffer.low_latency_query_mask_buffer(status)
        with pytest.raises(TypeError, match="mask_status is None"):
            buffer.low_latency_query_mask_buffer(None)  # type: ignore[arg-type]

    alone(body)


def test_what_is_no_tensor_is_named_by_an_elastic_buffer() -> None:
    def body(group: Any, rank: int, ranks: int) -> None:
        buffer = deep_ep.ElasticBuffer(group, num_max_tokens_per_rank=4)
        found, _, _, handle, _ = buffer.dispatch(X, IDS, num_experts=4)
        rows, _, _, expanded, _ = buffer.dispatch(X, IDS, num_experts=4, do_expand=True)
        stats = torch.zeros(3, dtype=torch.int32)
        refused([
            (ValueError, "do_zero_padding is given without do_expand",
             lambda: buffer.dispatch(X, IDS, num_experts=4, do_zero_padding=True)),
            (ValueError, r"cumulative_local_expert_recv_stats is torch.int32 \[3\]",
             lambda: buffer.dispatch(X, IDS, num_experts=4, cumulative_local_expert_recv_stats=stats)),
            (ValueError, "num_sms is -2; ", lambda: buffer.dispatch(X, IDS, num_experts=4, num_sms=-2)),
            (ValueError, "num_max_tokens_per_rank is -4; ",
             lambda: buffer.dispatch(X, IDS, num_experts=4, num_max_tokens_per_rank=-4)),
            (TypeError, "num_max_tokens_per_rank is 'a'; it must be a whole number",
             lambda: buffer.dispatch(X, IDS, num_experts=4, num_max_tokens_per_rank="a")),  # type: ignore[arg-type]
            (ValueError, "num_max_tokens_per_rank is -1; ", lambda: deep_ep.ElasticBuffer(group, num_max_tokens_per_rank=-1)),
            (ValueError, "num_experts is 0; it must be 1 or more", lambda: buffer.dispatch(X, IDS, num_experts=0)),
            *((TypeError, f"{name} is 3; it must be an EventHandle or an EventOverlap", lambda name=name, call=call: call(
                **{name: 3})) for name in ("previous_event", "previous_event_before_epilogue")
              for call in (functools.partial(buffer.dispatch, X, IDS, num_experts=4),
                           functools.partial(buffer.combine, found, handle))),
            (TypeError, "bias is 3; ", lambda: buffer.combine(found, handle, bias=3)),  # type: ignore[arg-type]
            (TypeError, "topk_weights is 3; ", lambda: buffer.combine(found, handle, 3)),  # type: ignore[arg-type]
            (ValueError, r"topk_weights .* \[rows, K\]", lambda: buffer.combine(found, handle, torch.ones(3))),
            (ValueError, r"topk_weights .* rows \[3, 2\]", lambda: buffer.combine(found, handle, torch.ones((3, 1)))),
            (ValueError, r"topk_weights .* \[rows\]", lambda: buffer.combine(rows, expanded, torch.ones((5, 2)))),
            (ValueError, r"topk_weights .* rows \[5\]", lambda: buffer.combine(rows, expanded, torch.ones(4))),
            (TypeError, "x is None", lambda: buffer.dispatch(None, IDS, num_experts=4)),
            (TypeError, "topk_idx is 7", lambda: buffer.dispatch(X, 7, num_experts=4)),  # type: ignore[arg-type]
            (ValueError, "topk_idx has shape", lambda: buffer.dispatch(X, IDS.flatten(), num_experts=4)),
            (TypeError, "x is None", lambda: buffer.combine(None, handle)),  # type: ignore[arg-type]
            (TypeError, "handle is None", lambda: buffer.combine(found, None))])

    on_threads(1, body)


def test_a_destroyed_buffer_is_closed_where_its_world_is_not() -> None:
    def body(world: Any, rank: int, ranks: int) -> None:
        buffer = deep_ep.Buffer(world, explicitly_destroy=True, enable_shrink=True)
        layout = layout_of(buffer, IDS, 4)
        rows, _, _, _, handle, _ = buffer.dispatch(X, topk_idx=IDS, **layout)
        found, _, low, _, _ = buffer.low_latency_dispatch(X, IDS, 4, 4, use_fp8=False)
        elastic = deep_ep.ElasticBuffer(world, num_max_tokens_per_rank=4, explicitly_destroy=True)
        elastic_rows, _, _, elastic_handle, _ = elastic.dispatch(X, IDS, num_experts=4)
        for _ in range(2):  # again: does nothing
            buffer.destroy()
            elastic.destroy()
        other, other_elastic = deep_ep.Buffer(world), deep_ep.ElasticBuffer(world, num_max_tokens_per_rank=4)
        for call in (
                lambda: layout_of(buffer, IDS, 4), lambda: buffer.dispatch(X, topk_idx=IDS, **layout),
                lambda: buffer.dispatch(X, handle=handle), lambda: buffer.combine(rows, handle),
                lambda: buffer.low_latency_dispatch(X, IDS, 4, 4),
                lambda: buffer.low_latency_combine(found, IDS, WEIGHTS, low), buffer.low_latency_clean_mask_buffer,
                lambda: elastic.dispatch(X, IDS, num_experts=4), lambda: elastic.dispatch(X, handle=elastic_handle),
                lambda: elastic.combine(elastic_rows, elastic_handle), elastic.barrier,
                lambda: other.combine(rows, handle), lambda: other.low_latency_combine(found, IDS, WEIGHTS, low),
                lambda: other_elastic.combine(elastic_rows, elastic_handle)):
            with pytest.raises(ferry.Closed, match=r"destroy\(\) was called"):
                call()
        world.barrier()  # the world goes on

    on_threads(1, body)


def test_handles_stay_in_their_process() -> None:
    def body(group: Any, rank: int, ranks: int) -> None:
        buffer, elastic = deep_ep.Buffer(group), deep_ep.ElasticBuffer(group, num_max_tokens_per_rank=4)
        for handle in (buffer.dispatch(X, topk_idx=IDS, **layout_of(buffer, IDS, 4))[4],
                       buffer.low_latency_dispatch(X, IDS, 4, 4)[2], elastic.dispatch(X, IDS, num_experts=4)[3]):
            for call in (pickle.dumps, copy.copy, copy.deepcopy):
                with pytest.raises(TypeError, match="a handle cannot be pickled or copied"):
                    call(handle)

    on_threads(1, body)


def test_what_ferry_refuses_has_the_names_of_this_interface() -> None:
    def body(group: Any, rank: int, ranks: int) -> None:
        buffer, elastic = deep_ep.Buffer(group), deep_ep.ElasticBuffer(group, num_max_tokens_per_rank=4)
        per_expert = torch.tensor([2, 2, 0, 0], dtype=torch.int32)
        strided = X.t().contiguous().t()

        def normal(x: torch.Tensor, ids: torch.Tensor) -> Any:
            return buffer.dispatch(x, topk_idx=ids, num_tokens_per_expert=per_expert)

        found, _, _, _, handle, _ = normal(X, IDS)
        for match, call in [
                ("x has a column stride", lambda: normal(strided, IDS)),
                ("topk_idx is i64", lambda: normal(X, IDS[:1])),
                ("topk_idx is not contiguous", lambda: elastic.dispatch(X, IDS.t().contiguous().t(), num_experts=4)),
                ("x has a column stride", lambda: buffer.low_latency_dispatch(strided, IDS, 4, 4)),
                ("x has 1 rows", lambda: buffer.dispatch(X[:1], handle=handle)),
                ("x has a column stride", lambda: buffer.combine(found.t().contiguous().t(), handle))]:
            with pytest.raises(ValueError, match=rf"^rank 0: {match}"):
                call()

    on_threads(1, body)
