"""The adapter for SGLang, in an engine built from the record of its interface."""

import importlib.metadata
import os
import subprocess
import sys
import types

import dense
import fake_sglang
import pytest
import rank_processes
import recorded
import torch
import torch.distributed as dist

import ferry
from fake_sglang import Dtype, Mode, Settings
from ferry.adapters import _interface
from oracle import make_layer

RECORD = _interface.record_of("sglang")
EXPERTS, TOP_K, HIDDEN, COUNTS, MOST = 6, 3, 256, [4, 0, 6], 6
LAYER = make_layer(3, EXPERTS, TOP_K, HIDDEN, COUNTS)  # with ids of -1
MATRICES = torch.randn((EXPERTS, HIDDEN, HIDDEN), generator=torch.Generator().manual_seed(9)) / 16
SIZES = {"FERRY_SGLANG_MAX_TOKENS": str(MOST), "SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK": str(MOST)}


def given(rank):
    """Tokens, weights and ids."""
    return (torch.from_numpy(LAYER.tokens[rank]).bfloat16(), torch.from_numpy(LAYER.weights[rank]),
            torch.from_numpy(LAYER.ids[rank]).to(torch.int32))


def make(modules, **fields):
    """As a layer of SGLang does."""
    config = fake_sglang.config_of(**{"num_experts": EXPERTS, "num_local_experts": EXPERTS // 3, "top_k": TOP_K,
                                      "hidden_size": HIDDEN, **fields})
    return modules[fake_sglang.LAYER].create_moe_dispatcher(config, quant_method=None)


def run_layer(dispatcher, modules, rank, settings):
    tokens, weights, ids = given(rank)
    came = dispatcher.dispatch(hidden_states=tokens,
                               topk_output=types.SimpleNamespace(topk_weights=weights, topk_ids=ids))
    deepep, own = modules[f"{fake_sglang.MOE}.token_dispatcher.deepep"], MATRICES[rank * 2:rank * 2 + 2]
    if isinstance(came, deepep.DeepEPNormalDispatchOutput):
        made = fake_sglang.experts_of_normal(deepep, own, came, 128 if settings.deep_gemm else 1)
    else:
        made = fake_sglang.experts_of_low_latency(deepep, own, came, 3 * MOST)
    sums = dispatcher.combine(combine_input=made)
    assert sums.dtype == torch.bfloat16
    return type(came).__name__, sums.float().numpy()


def in_a_group(rank, size, file):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=size)
    os.environ.update(SIZES, FERRY_SGLANG="1")
    settings, found = Settings(group=dist.group.WORLD), {}
    modules = fake_sglang.make(settings)
    with recorded.installed(modules, "sglang", "_sglang") as adapter:
        adapter.register()
        fake_sglang.apply_hooks(modules)
        first, second = make(modules), make(modules)
        for settings.extends in (True, False, True):  # prefill, decode, and back, on the same dispatchers
            for layer, dispatcher in (("first", first), ("second", second)):
                found[f"{layer}, {settings.extends}"] = run_layer(dispatcher, modules, rank, settings)
        settings.extends = False  # the low-latency mode may be captured
        with recorded.host_waits_for_nothing():
            found["captured, False"] = run_layer(first, modules, rank, settings)
        settings.extends = True
        normal = first._exchanges[True]._base

        def none(*_):
            raise MemoryError("none")

        normal._empty = none
        with pytest.raises(MemoryError):
            run_layer(first, modules, rank, settings)
        del normal._empty
        found["after it had no memory, True"] = run_layer(first, modules, rank, settings)
        shared = [list(dispatcher._exchanges.values()) for dispatcher in (first, second)]
        assert len(shared[0]) == 2 and all(one is other for one, other in zip(*shared))
        held = [exchange._base.memory_bytes for exchange in shared[0]]
        ferry.adapters.release(deadline=60)
        assert all(exchange._base.memory_bytes < before for exchange, before in zip(shared[0], held))
        ferry.adapters.restore(deadline=60)
        assert [exchange._base.memory_bytes for exchange in shared[0]] == held
        found["after a sleep, True"] = run_layer(first, modules, rank, settings)
        first.set_quant_config({"dispatcher_output_dtype": "fp8"})
        for settings.extends in (True, False):
            found[f"fp8, {settings.extends}"] = run_layer(first, modules, rank, settings)
        for exchange in (*shared[0], *first._exchanges.values()):
            exchange.close()
    dist.destroy_process_group()
    return found


def test_sums_are_those_of_a_dense_layer(tmp_path):
    """Rows, results and sums are bf16: off by 2^-8 of a value each. FP8 rows hold what the encoder makes of a token."""
    found = rank_processes.run(3, in_a_group, os.fspath(tmp_path / "meeting"))
    for rank, one in enumerate(found):
        tokens, weights, ids = given(rank)
        of_fp8 = torch.from_numpy(ferry.formats.decode("fp8_block128", *ferry.formats.encode("fp8_block128", tokens), HIDDEN))
        assert len(one) == 9
        for name, (kind, sums) in one.items():
            assert kind == ("DeepEPNormalDispatchOutput" if name.endswith("True") else "DeepEPLLDispatchOutput")
            values = of_fp8 if name.startswith("fp8") else tokens
            dense.assert_close(torch.from_numpy(sums),
                               dense.sums(values.double(), ids, weights.double(), MATRICES.double()), 0.01)


def turned_on(settings, monkeypatch):
    """(its modules, the adapter in them)"""
    monkeypatch.setenv("FERRY_SGLANG", "1")
    modules = fake_sglang.make(settings)
    return modules, recorded.installed(modules, "sglang", "_sglang")


def test_it_has_the_recorded_parameters(monkeypatch):
    _, engine = turned_on(Settings(), monkeypatch)
    with engine as adapter:
        adapter.create_moe_dispatcher(None, fake_sglang.config_of(), quant_method=None)
        assert not recorded.differences(RECORD, sys.modules["ferry.adapters._sglang"].FerryDispatcher, "BaseDispatcher")


def test_what_is_left_to_sglang_and_what_is_refused(monkeypatch):
    modules, engine = turned_on(Settings(backend="none"), monkeypatch)
    with engine as adapter:
        adapter.register()
        fake_sglang.apply_hooks(modules)
        assert make(modules) == "SGLang's own"
    for setting, fields, says in (({"tbo": True}, {}, "enable_two_batch_overlap"),
                                  ({"sbo": True}, {}, "enable_single_batch_overlap"),
                                  ({"eplb": True}, {}, "enable_eplb"),
                                  ({}, {"num_fused_shared_experts": 1}, "num_fused_shared_experts is 1"),
                                  ({}, {"params_dtype": torch.float16}, "params_dtype is torch.float16")):
        modules, engine = turned_on(Settings(**setting), monkeypatch)
        with engine as adapter:
            adapter.register()
            fake_sglang.apply_hooks(modules)
            with pytest.raises(NotImplementedError, match=says):
                make(modules, **fields)
    monkeypatch.setenv("FERRY_SGLANG", "fp8")
    with recorded.installed({}, "sglang") as adapter, pytest.raises(ValueError, match="FERRY_SGLANG is 'fp8'; it must be"):
        adapter.register()


@pytest.mark.parametrize("setting, environment, says", [
    ({"dtype": Dtype.NVFP4}, SIZES, "deepep_dispatcher_output_dtype is nvfp4"),
    ({"dtype": Dtype.FP8, "packed_scales": True}, SIZES, "DEEPGEMM_SCALE_UE8M0.*--deepep-dispatcher-output-dtype bf16"),
    ({}, {}, "FERRY_SGLANG_MAX_TOKENS is ''; it must be the most tokens"),
    ({"mode": Mode.LOW_LATENCY}, {"SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK": "0"}, "PER_RANK is '0'"),
])
def test_what_the_first_dispatch_refuses(setting, environment, says, monkeypatch):
    for name in SIZES:
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    settings = Settings(**setting)
    modules, engine = turned_on(settings, monkeypatch)
    with engine as adapter:
        adapter.register()
        fake_sglang.apply_hooks(modules)
        with pytest.raises((NotImplementedError, ValueError), match=says):
            run_layer(make(modules), modules, 0, settings)


def test_another_engine_ends_the_start_of_the_model(monkeypatch):
    modules, engine = turned_on(Settings(), monkeypatch)
    del modules[f"{fake_sglang.MOE}.utils"].get_deepep_mode
    with engine as adapter:
        adapter.register()  # whose errors SGLang would only log
        fake_sglang.apply_hooks(modules)
        with pytest.raises(ferry.Unsupported, match="has no get_deepep_mode.*sglang.*knows 0.5.23"):
            make(modules)


def test_it_costs_nothing_where_nobody_asks():
    program = ("import sys, ferry.adapters.sglang as adapter; adapter.register(); "
               "assert not {'torch', 'sglang', 'ferry.torch'} & sys.modules.keys()")
    environment = {name: value for name, value in os.environ.items() if name != "FERRY_SGLANG"}
    for value in ({}, {"FERRY_SGLANG": "0"}):
        subprocess.run([sys.executable, "-c", program], check=True, timeout=60, env=environment | value)


def test_the_entry_point():
    found = [entry for entry in importlib.metadata.entry_points(group="sglang.srt.plugins") if entry.name == "ferry"]
    assert [entry.value for entry in found] == ["ferry.adapters.sglang:register"] and callable(found[0].load())
