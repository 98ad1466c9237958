"""The interface that DeepEP's test files want: names, and how they call them. Taken from tests/test_intranode.py and
tests/test_low_latency.py of 567632d, and from tests/elastic/test_ep.py and tests/legacy of dd758ca. And all that the two have by a public name.
"""

from __future__ import annotations

import importlib
import inspect
import re
import weakref
from typing import Any

import pytest
import torch

import deep_ep
import deep_ep._C
import deep_ep.utils.envs
import ferry
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
        "generate_rank_count": "num_tokens, num_experts, num_ranks, num_topk, ratio",
        "generate_topk_idx": "rank_count, num_tokens, num_experts, num_ranks, num_topk",
        "map_unbalanced_ratio_to_factor": "num_tokens, num_experts, num_ranks, num_topk, ratio"},
    "envs": {
        "init_dist": "local_rank, num_local_ranks, seed=0", "init_seed": "global_seed", "get_local_seed": "",
        "get_global_seed": "", "dist_print": "s='', once_in_node=False", "get_physical_domain_size": "group",
        "get_logical_domain_size": "group, allow_hybrid_mode=True", "check_nvlink_connections": "group",
        "get_nvlink_gbs": "factor=0.9", "check_torch_deterministic": ""},
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
    "semantic": {"value_or": "value, default", "weak_lru": "maxsize=128, typed=False"},
}
STEP = "previous_event=None, async_finish=False, allocate_on_comm_stream=False"
LAYOUT = "num_tokens_per_rank=None, num_tokens_per_rdma_rank=None, is_token_in_rank=None, num_tokens_per_expert=None"
ELASTIC_STEP = ("num_sms=0, num_qps=0, previous_event=None, previous_event_before_epilogue=None, "
                "async_with_compute_stream=False, allocate_on_comm_stream=False")
DISPATCH = (f"x, handle=None, {LAYOUT}, topk_idx=None, topk_weights=None, expert_alignment=1, num_worst_tokens=0, "
            f"config=None, {STEP}")
COMBINE = f"x, handle, topk_weights=None, bias=None, config=None, {STEP}"
# Parameters of all methods, in order; those here may go on behind them.
METHODS: dict[Any, dict[str, str]] = {
    deep_ep.Buffer: {
        "__init__": "group, num_nvl_bytes=0, num_rdma_bytes=0, low_latency_mode=False, num_qps_per_rank=24, "
                    "allow_nvlink_for_low_latency_mode=True, allow_mnnvl=False, use_fabric=False, explicitly_destroy=False, "
                    "enable_shrink=False, comm=None",
        "destroy": "", "is_sm90_compiled": "", "set_num_sms": "new_num_sms", "capture": "", "get_comm_stream": "",
        "get_low_latency_rdma_size_hint": "num_max_dispatch_tokens_per_rank, hidden, num_ranks, num_experts",
        "get_local_buffer_tensor": "dtype, size=None, offset=0, use_rdma_buffer=False",
        "get_dispatch_config": "num_ranks", "get_combine_config": "num_ranks",
        "get_dispatch_layout": f"topk_idx, num_experts, {STEP}", "dispatch": DISPATCH, "combine": COMBINE,
        "internode_dispatch": DISPATCH, "internode_combine": COMBINE,
        "clean_low_latency_buffer": "num_max_dispatch_tokens_per_rank, hidden, num_experts",
        "low_latency_dispatch": "x, topk_idx, num_max_dispatch_tokens_per_rank, num_experts, "
                                "cumulative_local_expert_recv_stats=None, dispatch_wait_recv_cost_stats=None, use_fp8=True, "
                                "round_scale=False, use_ue8m0=False, async_finish=False, return_recv_hook=False",
        "low_latency_combine": "x, topk_idx, topk_weights, handle, use_logfmt=False, zero_copy=False, async_finish=False, "
                               "return_recv_hook=False, out=None, combine_wait_recv_cost_stats=None",
        "low_latency_update_mask_buffer": "rank_to_mask, mask=False", "low_latency_query_mask_buffer": "mask_status",
        "low_latency_clean_mask_buffer": "", "get_next_low_latency_combine_buffer": "handle"},
    deep_ep.ElasticBuffer: {
        "__init__": "group, num_bytes=None, num_cpu_bytes=0, num_max_tokens_per_rank=0, hidden=0, num_topk=0, "
                    "use_fp8_dispatch=False, deterministic=False, allow_hybrid_mode=True, allow_multiple_reduction=True, "
                    "prefer_overlap_with_compute=True, sl_idx=3, num_allocated_qps=0, num_cpu_timeout_secs=300, "
                    "num_gpu_timeout_secs=100, explicitly_destroy=False",
        "destroy": "", "capture": "", "get_comm_stream": "", "get_physical_domain_size": "", "get_logical_domain_size": "",
        "get_buffer_size_hint": "group, num_max_tokens_per_rank, hidden, num_topk=0, use_fp8_dispatch=False, "
                                "allow_hybrid_mode=True, allow_multiple_reduction=True",
        "get_theoretical_num_sms": "num_experts, num_topk, num_scaleout_topk=0, rdma_gbs=0, nvlink_gbs=0, sm_read_gbs=200, "
                                   "sm_write_gbs=50",
        "get_theoretical_num_qps": "num_sms", "agrs_new_session": "enabled=True",
        "barrier": "use_comm_stream=True, with_cpu_sync=False, sequential=True",
        "dispatch": "x, topk_idx=None, topk_weights=None, cumulative_local_expert_recv_stats=None, num_experts=None, "
                    f"num_max_tokens_per_rank=None, expert_alignment=None, {ELASTIC_STEP}, handle=None, "
                    "do_handle_copy=True, do_cpu_sync=None, do_expand=False, do_zero_padding=False, "
                    "use_tma_aligned_col_major_sf=False",
        "combine": f"x, handle, topk_weights=None, bias=None, {ELASTIC_STEP}"},
    deep_ep.EventOverlap: {
        "__init__": "event=None, extra_tensors=None", "current_stream_wait": "release_handle=False",
        "register_hook_after_wait": "hook_after_wait", "__call__": "release_handle=False", "__enter__": ""},
    deep_ep.EventHandle: {"__init__": "", "current_stream_wait": ""},
    deep_ep.Config: {
        "__init__": "num_sms=20, num_max_nvl_chunked_send_tokens=6, num_max_nvl_chunked_recv_tokens=256, "
                    "num_max_rdma_chunked_send_tokens=6, num_max_rdma_chunked_recv_tokens=256",
        "get_nvl_buffer_size_hint": "hidden_bytes, num_ranks", "get_rdma_buffer_size_hint": "hidden_bytes, num_ranks"},
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
FIELDS = {
    "Buffer": ("group", "rank", "group_size", "num_nvl_bytes", "num_rdma_bytes", "low_latency_mode", "explicitly_destroy",
               "enable_shrink", "runtime", "num_sms"),
    "ElasticBuffer": ("group", "rank_idx", "num_ranks", "allow_hybrid_mode", "allow_multiple_reduction",
                      "prefer_overlap_with_compute", "deterministic", "nccl_comm_handle", "num_bytes",
                      "num_max_tokens_per_rank", "num_allocated_qps", "explicitly_destroy", "runtime", "num_scaleout_ranks",
                      "num_scaleup_ranks", "scaleout_rank_idx", "scaleup_rank_idx", "num_rdma_ranks", "num_nvlink_ranks"),
    "EPHandle": ("do_expand", "num_experts", "expert_alignment", "num_max_tokens_per_rank", "num_sms", "topk_idx",
                 "num_recv_tokens", "num_expanded_tokens", "num_recv_tokens_per_expert_list",
                 "psum_num_recv_tokens_per_scaleup_rank", "psum_num_recv_tokens_per_expert",
                 "num_unaligned_recv_tokens_per_expert", "recv_src_metadata", "dst_buffer_slot_idx",
                 "token_metadata_at_forward", "channel_linked_list", "cached_recv_src_metadata_before_sort"),
    "EventOverlap": ("event", "extra_tensors", "hook_after_wait"),
}
# More than expert parallelism, or more than one host, or NCCL's, or a compiler's.
REFUSED = {
    "deep_ep": ("check_nccl_so", "find_cuda_home", "init_jit"),
    "deep_ep._C": ("calculate_elastic_buffer_size", "create_cpu_handle", "create_nccl_comm", "destroy_nccl_comm",
                   "get_local_nccl_unique_id", "get_logical_domain_size", "get_physical_domain_size", "init_jit"),
    "deep_ep.utils.comm": ("NCCLCommHandle", "get_nccl_comm_handle"),
    "deep_ep.utils.envs": ("get_rdma_gbs", "check_fast_rdma_atomic_support"),
    "deep_ep.utils.find_pkgs": ("find_nccl_root", "find_nvshmem_root", "find_pkg_root"),
}
# Of DeepEP's compiled objects, which are `runtime` of a buffer.
REFUSED_OF_RUNTIMES = {
    "Buffer": ("get_local_ipc_handle", "get_local_nvshmem_unique_id", "sync", "get_dispatch_layout", "intranode_dispatch",
               "intranode_combine", "internode_dispatch", "internode_combine", "low_latency_dispatch", "low_latency_combine",
               "low_latency_update_mask_buffer", "low_latency_query_mask_buffer", "low_latency_clean_mask_buffer",
               "get_next_low_latency_combine_buffer"),
    "ElasticBuffer": ("engram_write", "engram_fetch", "pp_set_config", "pp_send", "pp_recv", "create_agrs_session",
                      "destroy_agrs_session", "agrs_set_config", "agrs_get_inplace_tensor", "all_gather", "dispatch",
                      "combine"),
}


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


@pytest.mark.parametrize("owner, name", [(owner, name) for owner, methods in METHODS.items() for name in methods])
def test_methods_have_the_parameters(owner: Any, name: str) -> None:
    there = [one for one in inspect.signature(getattr(owner, name)).parameters.values() if one.name != "self"]
    wanted = [one.split("=") for one in METHODS[owner][name].split(", ") if one]
    assert [one.name for one in there[:len(wanted)]] == [one[0] for one in wanted]
    assert all(str(one.default) == default[0] for one, (_, *default) in zip(there, wanted) if default)
    assert all(one.kind == one.VAR_KEYWORD or one.default is not one.empty for one in there[len(wanted):])


def test_fields_that_are_read() -> None:
    def body(group: Any, rank: int, ranks: int) -> None:
        buffer = deep_ep.ElasticBuffer(group, num_max_tokens_per_rank=4)
        _, _, _, handle, event = buffer.dispatch(torch.ones((1, 64), dtype=torch.bfloat16), torch.tensor([[0]]),
                                                 num_experts=1)
        for one in (deep_ep.Buffer(group), buffer, handle, event):
            assert all(hasattr(one, name) for name in FIELDS[type(one).__name__])
        kept = handle.recv_src_metadata.clone()
        handle.deterministic_sort(True, False, kept, None, kept, kept, None)
        assert torch.equal(handle.recv_src_metadata, kept)

    on_threads(1, body)


@pytest.mark.parametrize("module, name", [(module, name) for module, names in REFUSED.items() for name in names])
def test_what_goes_beyond_says_its_name(module: str, name: str) -> None:
    call = getattr(importlib.import_module(module), name)
    assert call.__name__ == name
    with pytest.raises(NotImplementedError, match=f"^{re.escape(module)}\\.{name}: "):
        call("mlx5_0")


def test_what_is_asked_of_runtimes() -> None:
    def body(world: Any, rank: int, ranks: int) -> None:
        buffer = deep_ep.Buffer(world, explicitly_destroy=True)
        elastic = deep_ep.ElasticBuffer(world, num_max_tokens_per_rank=4, explicitly_destroy=True)
        runtime, other = buffer.runtime, elastic.runtime
        assert isinstance(runtime, deep_ep._C.Buffer) and isinstance(other, deep_ep._C.ElasticBuffer)
        assert runtime.is_available() and not runtime.is_internode_available()
        assert (runtime.get_num_rdma_ranks(), runtime.get_rdma_rank(), runtime.get_local_device_id()) == (1, 0, 0)
        assert [runtime.get_root_rdma_rank(is_global) for is_global in (True, False)] == [rank, 0]
        assert runtime.get_comm_stream() == buffer.get_comm_stream() and other.get_comm_stream() is not None
        assert runtime.get_local_buffer_tensor(torch.int32, 0, True).fill_(-1).dtype == torch.int32
        assert runtime.clean_low_latency_buffer(4, 64, 2) is None  # type: ignore[func-returns-value]
        assert other.get_physical_domain_size() == other.get_logical_domain_size() == (1, ranks)
        other.barrier(False, True, True)
        for one, owner in ((runtime, "Buffer"), (other, "ElasticBuffer")):
            for name in REFUSED_OF_RUNTIMES[owner]:
                with pytest.raises(NotImplementedError, match=rf"^{owner}\.runtime\.{name}: "):
                    getattr(one, name)(1, size=2)
        runtime.destroy()
        buffer.destroy()
        elastic.destroy()
        assert not runtime.is_available() and buffer.runtime is None and elastic.runtime is None
        for call in (buffer.low_latency_clean_mask_buffer, other.barrier, elastic.barrier):
            with pytest.raises(ferry.Closed):
                call()

    on_threads(2, body)


def test_a_buffer_that_is_let_go_is_gone() -> None:
    """Nothing that it holds holds it, so its memory does not wait for a collection of garbage."""
    def body(world: Any, rank: int, ranks: int) -> None:
        for make in (deep_ep.Buffer, deep_ep.ElasticBuffer):
            buffer = make(world)
            gone = weakref.ref(buffer)
            del buffer
            assert gone() is None

    on_threads(1, body)


def test_the_compiled_module() -> None:
    assert deep_ep._C.is_sm90_compiled() and deep_ep._C.get_elastic_buffer_alignment() == 1 << 21
    assert (deep_ep._C.get_low_latency_rdma_size_hint(128, 7168, 8, 256)
            == deep_ep.Buffer.get_low_latency_rdma_size_hint(128, 7168, 8, 256))


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


def test_an_elastic_buffer_takes_none_and_judges_numbers() -> None:
    def body(world: Any, rank: int, ranks: int) -> None:
        buffer = deep_ep.ElasticBuffer(world, num_max_tokens_per_rank=None, hidden=None, num_gpu_timeout_secs=None)
        assert buffer.num_max_tokens_per_rank == 0
        for name, value, least in (("num_max_tokens_per_rank", -1, 0), ("num_gpu_timeout_secs", 0, 1),
                                   ("num_gpu_timeout_secs", -1, 1)):
            with pytest.raises(ValueError, match=f"^{name} is {value}; it must be {least} or more$"):
                deep_ep.ElasticBuffer(world, **{name: value})

    on_threads(1, body)


SECONDS = "a number of seconds above 0 and at most 86400"


@pytest.mark.parametrize("variable, value, must_be", [
    *(("FERRY_DEEPEP_DEADLINE", value, SECONDS) for value in ("", "soon", "-1", "0", "nan", "inf", "86401")),
    *(("FERRY_DEEPEP_MAX_TOKENS", value, "a whole number of at least 0 and at most 2147483647")
      for value in ("", "lots", "-5", "1.5", str(2**31)))])
def test_numbers_of_the_environment_are_judged(monkeypatch: pytest.MonkeyPatch, variable: str, value: str,
                                               must_be: str) -> None:
    def body(world: Any, rank: int, ranks: int) -> None:
        monkeypatch.setenv(variable, value)
        for make in (deep_ep.Buffer, deep_ep.ElasticBuffer):
            with pytest.raises(ValueError, match=f"^{variable} is '{re.escape(value)}'; it must be {must_be}$"):
                make(world)
        monkeypatch.delenv(variable)

    on_threads(1, body)


@pytest.mark.parametrize("variable, value, least", [("WORLD_SIZE", "0", 1), ("WORLD_SIZE", "two", 1), ("RANK", "-1", 0)])
def test_so_are_those_of_who_comes_together(monkeypatch: pytest.MonkeyPatch, variable: str, value: str, least: int) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ValueError, match=f"^{variable} is '{value}'; it must be a whole number of at least {least} and"):
        deep_ep.utils.envs.init_dist(0, 1)
