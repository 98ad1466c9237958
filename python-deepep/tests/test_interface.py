"""The interface that DeepEP's test files want: names, and how they call them. Taken from tests/test_intranode.py and
tests/test_low_latency.py of 567632d, and from tests/elastic/test_ep.py and tests/legacy of dd758ca."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import pytest
import torch

import deep_ep
from launch import on_threads

# Parameters of what lies in deep_ep.utils, with their defaults.
HELPERS = {
    "math": {
        "calc_diff": "x, y", "safe_div": "a, b", "ceil_div": "x, y", "align": "x, y", "per_token_cast_to_fp8": "x",
        "per_token_cast_back": "x_fp8, x_scales", "inplace_unique": "x, num_slots",
        "create_grouped_scores": "scores, group_idx, num_groups", "hash_tensor": "t", "hash_tensors": "*tensors",
        "count_bytes": "*tensors"},
    "gate": {
        "get_unbalanced_scores": "num_tokens, num_experts, num_ranks, num_topk, ratio, precise",
        "get_precise_unbalanced_scores": "num_tokens, num_experts, num_ranks, num_topk, ratio",
        "get_random_unbalanced_scores": "num_tokens, num_experts, num_ranks, num_topk, ratio",
        "get_scores_by_factor": "num_tokens, num_experts, num_ranks, factor",
        "map_unbalanced_ratio_to_factor": "num_tokens, num_experts, num_ranks, num_topk, ratio"},
    "envs": {
        "init_dist": "local_rank, num_local_ranks, seed=0", "init_seed": "global_seed", "get_local_seed": "",
        "get_global_seed": "", "dist_print": "s='', once_in_node=False", "get_physical_domain_size": "group",
        "get_logical_domain_size": "group, allow_hybrid_mode=True", "check_nvlink_connections": "group",
        "get_nvlink_gbs": "factor=0.9"},
    "refs": {
        "dispatch": "x, topk_idx, topk_weights, num_max_tokens_per_rank, num_experts",
        "generate_pre_combine_data": "src_token_global_idx, num_max_tokens_per_rank, num_topk, hidden",
        "ordered_accumulate": "data, initial_value=None",
        "combine": "y, topk_idx, num_scaleout_ranks, num_scaleup_ranks, num_experts, bias, reduce_in_local, "
                   "reduce_in_scaleup"},
    "testing": {
        "flush_l2_cache": "enabled=True", "bench": "fn, num_warmups=50, num_tests=50, post_fn=None, flush_l2=True",
        "bench_kineto": "fn, kernel_names, num_tests=30, suppress_kineto_output=False, trace_path=None, flush_l2=True, "
                        "barrier_comm_profiling=False, num_kernels_per_period=1, barrier=None",
        "suppress_stdout_stderr": "", "empty_suppress": ""},
    "comm": {"destroy_all_managed_nccl_comm": ""},
}
# Numbers of arguments without names, and names of others, of a call; the buffer is among the former.
STREAMS = ("async_with_compute_stream", "allocate_on_comm_stream", "previous_event", "num_sms", "num_qps")
CALLS: list[tuple[str, int, tuple[str, ...]]] = [
    ("Config", 3, ()), ("Config", 5, ()),
    ("Buffer", 1, ("num_rdma_bytes", "low_latency_mode", "num_qps_per_rank", "allow_nvlink_for_low_latency_mode",
                   "explicitly_destroy", "allow_mnnvl", "use_fabric", "enable_shrink")),
    ("Buffer", 3, ("low_latency_mode", "num_qps_per_rank", "explicitly_destroy", "allow_mnnvl", "use_fabric")),
    ("Buffer.is_sm90_compiled", 0, ()), ("Buffer.set_num_sms", 1, ()), ("Buffer.get_dispatch_config", 1, ()),
    ("Buffer.get_combine_config", 1, ()), ("Buffer.get_low_latency_rdma_size_hint", 4, ()), ("Buffer.capture", 0, ()),
    ("Buffer.get_dispatch_layout", 3, ()), ("Buffer.destroy", 1, ()), ("Buffer.clean_low_latency_buffer", 4, ()),
    ("Buffer.dispatch", 1, ("x", "num_tokens_per_rank", "is_token_in_rank", "num_tokens_per_expert", "config", "topk_idx",
                            "topk_weights", "num_worst_tokens", "async_finish", "previous_event")),
    ("Buffer.dispatch", 1, ("x", "handle", "config", "async_finish", "previous_event")),
    ("Buffer.combine", 1, ("x", "handle", "config", "topk_weights", "async_finish", "previous_event")),
    ("Buffer.low_latency_dispatch", 5, ("use_fp8", "round_scale", "use_ue8m0", "cumulative_local_expert_recv_stats",
                                        "async_finish", "return_recv_hook")),
    ("Buffer.low_latency_combine", 5, ("use_logfmt", "zero_copy", "out", "async_finish", "return_recv_hook")),
    ("Buffer.get_next_low_latency_combine_buffer", 2, ()), ("Buffer.low_latency_query_mask_buffer", 2, ()),
    ("ElasticBuffer", 1, ("num_max_tokens_per_rank", "hidden", "deterministic", "allow_hybrid_mode",
                          "allow_multiple_reduction", "prefer_overlap_with_compute", "sl_idx", "num_allocated_qps",
                          "explicitly_destroy", "num_gpu_timeout_secs", "num_cpu_timeout_secs")),
    ("ElasticBuffer.capture", 0, ()), ("ElasticBuffer.barrier", 1, ()), ("ElasticBuffer.destroy", 1, ()),
    ("ElasticBuffer.get_logical_domain_size", 1, ()), ("ElasticBuffer.get_theoretical_num_sms", 3, ()),
    ("ElasticBuffer.get_theoretical_num_qps", 2, ()),
    ("ElasticBuffer.dispatch", 1, ("x", "topk_idx", "topk_weights", "num_max_tokens_per_rank", "num_experts",
                                   "expert_alignment", "do_handle_copy", "do_cpu_sync", "do_expand",
                                   "use_tma_aligned_col_major_sf", "cumulative_local_expert_recv_stats", *STREAMS)),
    ("ElasticBuffer.dispatch", 1, ("x", "handle", "topk_weights", "do_expand", "use_tma_aligned_col_major_sf",
                                   "do_zero_padding", *STREAMS)),
    ("ElasticBuffer.combine", 1, ("x", "topk_weights", "bias", "handle", *STREAMS)),
]
OF_A_BUFFER = ("num_ranks", "rank_idx", "num_allocated_qps", "scaleout_rank_idx", "scaleup_rank_idx")
OF_A_HANDLE = ("topk_idx", "num_recv_tokens_per_expert_list", "dst_buffer_slot_idx", "recv_src_metadata",
               "psum_num_recv_tokens_per_expert", "psum_num_recv_tokens_per_scaleup_rank")
# More than expert parallelism, or more than one host.
REFUSED = {"envs": ("get_rdma_gbs", "check_fast_rdma_atomic_support"), "comm": ("get_nccl_comm_handle",)}


def parameters(call: Any) -> str:
    given = inspect.signature(call).parameters.values()
    return ", ".join(str(one.replace(annotation=inspect.Parameter.empty)) for one in given)


@pytest.mark.parametrize("module", HELPERS)
def test_helpers_have_the_parameters(module: str) -> None:
    there = importlib.import_module(f"deep_ep.utils.{module}")
    assert {name: parameters(getattr(there, name)) for name in HELPERS[module]} == HELPERS[module]


@pytest.mark.parametrize("name, positional, keywords", CALLS)
def test_calls_bind(name: str, positional: int, keywords: tuple[str, ...]) -> None:
    call: Any = deep_ep
    for part in name.split("."):
        call = getattr(call, part)
    signature = inspect.signature(call)
    signature.bind(*[None] * positional, **dict.fromkeys(keywords))
    assert set(keywords) <= set(signature.parameters)  # by name: what falls under ** is refused


def test_fields_that_are_read() -> None:
    def body(group: Any, rank: int, ranks: int) -> None:
        buffer = deep_ep.ElasticBuffer(group, num_max_tokens_per_rank=4)
        _, _, _, handle, _ = buffer.dispatch(torch.ones((1, 64), dtype=torch.bfloat16), torch.tensor([[0]]), num_experts=1)
        assert all(hasattr(buffer, name) for name in OF_A_BUFFER)
        assert all(hasattr(handle, name) for name in OF_A_HANDLE)

    on_threads(1, body)


@pytest.mark.parametrize("module, name", [(module, name) for module, names in REFUSED.items() for name in names])
def test_what_goes_beyond_says_its_name(module: str, name: str) -> None:
    call = getattr(importlib.import_module(f"deep_ep.utils.{module}"), name)
    assert call.__name__ == name
    with pytest.raises(NotImplementedError, match=rf"deep_ep\.utils\.{module}\.{name}: "):
        call("mlx5_0")


@pytest.mark.parametrize("given, environment, wanted", [(300, None, 300.0), (100, "600", 600.0), (100, None, 100.0)])
def test_how_long_an_elastic_buffer_waits(monkeypatch: pytest.MonkeyPatch, given: int, environment: str | None,
                                          wanted: float) -> None:
    def body(world: Any, rank: int, ranks: int) -> None:
        if environment is None:
            monkeypatch.delenv("FERRY_DEEPEP_DEADLINE", raising=False)
        else:
            monkeypatch.setenv("FERRY_DEEPEP_DEADLINE", environment)
        buffer = deep_ep.ElasticBuffer(world, num_max_tokens_per_rank=4, num_gpu_timeout_secs=given)
        assert buffer._ranks.deadline == wanted

    on_threads(1, body)
