"""The adapter for vLLM, in an engine built from the record of its interface."""

import importlib.metadata
import inspect
import os
import subprocess
import sys
import types

import dense
import fake_vllm
import pytest
import rank_processes
import recorded
import torch
import torch.distributed as dist

import ferry
from ferry.adapters import _interface
from oracle import make_layer

RECORD = _interface.record_of("vllm")
EXPERTS, TOP_K, HIDDEN, COUNTS = 7, 3, 256, [4, 0, 6]
LAYER = make_layer(3, EXPERTS, TOP_K, HIDDEN, COUNTS)  # with ids of -1
MATRICES = torch.randn((EXPERTS, HIDDEN, HIDDEN), generator=torch.Generator().manual_seed(9)) / 16
FP8 = dict(quant_dtype=torch.float8_e4m3fn, block_shape=[128, 128], is_block_quantized=True)


def given(rank, top_k=TOP_K):
    """Tokens, weights and ids."""
    return (torch.from_numpy(LAYER.tokens[rank]).bfloat16(), torch.from_numpy(LAYER.weights[rank])[:, :top_k].contiguous(),
            torch.from_numpy(LAYER.ids[rank])[:, :top_k].to(torch.int32).contiguous())


def expert_map_of(rank, size):
    """vLLM's linear placement: the first ranks have one more."""
    first = [EXPERTS // size * one + min(one, EXPERTS % size) for one in range(size + 1)]
    found = torch.full((EXPERTS,), -1, dtype=torch.int32)
    found[first[rank]:first[rank + 1]] = torch.arange(first[rank + 1] - first[rank], dtype=torch.int32)
    return found


def run_layers(rank, size, modules, *, quant=None, top_k=TOP_K, on_input=False, alike=False):
    """Two layers, one after the other; vLLM's way to make each. `alike`: with as many tokens on all ranks."""
    expert_map = expert_map_of(rank, size)
    moe = fake_vllm.moe_of(num_experts=EXPERTS, experts_per_token=top_k, hidden_dim=HIDDEN, max_num_tokens=6,
                           num_local_experts=int((expert_map >= 0).sum()))
    config = fake_vllm.quant_config_of(**(quant or {}))
    kernels = []
    for reduced in (True, False):
        make = modules[f"{fake_vllm.FUSED_MOE}.importer"].maybe_make_prepare_finalize
        kernel = make(moe=moe, quant_config=config, allow_new_interface=True)
        experts = fake_vllm.Experts(modules, MATRICES[expert_map >= 0], config, reduces=reduced)
        kernel.post_init_setup(experts)
        assert kernel.activation_format == "standard" and kernel.num_dispatchers() == size
        assert kernel.output_is_reduced() and not kernel.supports_async()
        assert kernel.max_num_tokens_per_rank() is None and kernel.topk_indices_dtype() == torch.int32
        kernels.append((kernel, experts))
    assert len({id(kernel._exchange) for kernel, _ in kernels}) == 1, "layers of a shape share an exchange"
    tokens, weights, ids = given(2 if alike else rank, top_k)
    shape = {"experts": EXPERTS, "expert_map": expert_map}
    found = [fake_vllm.layer(kernel, experts, tokens, weights, ids, shape, apply_router_weight_on_input=on_input)
             .float().numpy() for kernel, experts in kernels]
    kernels[0][0]._exchange.close()
    return found, [experts.entries for _, experts in kernels], [experts.empty_rows for _, experts in kernels]


def in_a_group(rank, size, file):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=size)
    found = {}
    for name in ("bf16", "fp8_block128"):
        os.environ["FERRY_VLLM"] = name
        modules = fake_vllm.make(types.SimpleNamespace(cpu_group=dist.group.WORLD))
        with recorded.installed(modules, "vllm", "_vllm") as adapter:
            adapter.register()
            adapter.register()
            if name == "bf16":
                found["plain"] = run_layers(rank, size, modules)
                found["quantized"] = run_layers(rank, size, modules, quant={"quant_dtype": torch.float8_e4m3fn})
                found["on input"] = run_layers(rank, size, modules, top_k=1, on_input=True)
                sys.modules["ferry.adapters._vllm"]._is_captured = lambda exchange: True
                modules["vllm"].quantized.clear()
                torch.use_deterministic_algorithms(True)  # fills new memory with NaN
                with recorded.host_waits_for_nothing():
                    found["captured"] = run_layers(rank, size, modules, quant={"quant_dtype": torch.float8_e4m3fn},
                                                   alike=True)
                torch.use_deterministic_algorithms(False)
                found["rows"] = [(len(rows), int(rows.any(1).sum())) for rows in modules["vllm"].quantized]
            else:
                found["fp8"] = run_layers(rank, size, modules, quant=FP8)
    dist.destroy_process_group()
    return found


def test_sums_are_those_of_a_dense_layer(tmp_path):
    """Rows, results and sums are bf16: off by 2^-8 of a value each. FP8 rows hold what the encoder makes of a token."""
    found = rank_processes.run(3, in_a_group, os.fspath(tmp_path / "meeting"))
    for rank, one in enumerate(found):
        tokens, weights, ids = given(rank)
        of_fp8 = torch.from_numpy(ferry.formats.decode("fp8_block128", *ferry.formats.encode("fp8_block128", tokens), HIDDEN))
        for name, values in (("plain", tokens), ("quantized", tokens), ("fp8", of_fp8)):
            want = dense.sums(values.double(), ids, weights.double(), MATRICES.double())
            for got in one[name][0]:
                dense.assert_close(torch.from_numpy(got), want, 0.01)
        weighted = (tokens * weights[:, :1].bfloat16()).double()
        for got in one["on input"][0]:
            dense.assert_close(torch.from_numpy(got), dense.sums(weighted, ids[:, :1], None, MATRICES.double()), 0.01)
    tokens, weights, ids = given(2)
    want = dense.sums(tokens.double(), ids, weights.double(), MATRICES.double())
    for one in found:  # room for 3 * 6 rows; what no token came for is zeros, and has no expert here
        for got, (rows, came), empty in zip(one["captured"][0], one["rows"], one["captured"][2]):
            dense.assert_close(torch.from_numpy(got), want, 0.01)
            assert rows == 18 and came + empty == 18 and came % 3 == 0
        assert one["plain"][2] == [0, 0]
    entries = sum(int((given(rank)[2] >= 0).sum()) for rank in range(3))
    assert [sum(one["plain"][1][layer] for one in found) for layer in range(2)] == [entries, entries]


def turned_on(modules, monkeypatch, name="1"):
    monkeypatch.setenv("FERRY_VLLM", name)
    return recorded.installed(modules, "vllm", "_vllm")


def test_it_has_the_recorded_parameters(monkeypatch):
    modules = fake_vllm.make(None)
    with turned_on(modules, monkeypatch) as adapter:
        adapter.register()
        ours = sys.modules["ferry.adapters._vllm"].FerryPrepareAndFinalize
        assert not recorded.differences(RECORD, ours, "FusedMoEPrepareAndFinalizeModular")
        wanted = RECORD["modules"][f"{fake_vllm.FUSED_MOE}.all2all_utils"]["maybe_make_prepare_finalize"]
        for module in ("all2all_utils", "importer"):
            replaced = modules[f"{fake_vllm.FUSED_MOE}.{module}"].maybe_make_prepare_finalize
            assert replaced.__module__ == "ferry.adapters._vllm"
            assert list(inspect.signature(replaced).parameters) == _interface.parameters_of(wanted)


def test_what_is_left_to_vllm_and_what_is_refused(monkeypatch):
    modules = fake_vllm.make(types.SimpleNamespace(cpu_group=None))
    with turned_on(modules, monkeypatch) as adapter:
        adapter.register()
        make = modules[f"{fake_vllm.FUSED_MOE}.all2all_utils"].maybe_make_prepare_finalize
        assert make(fake_vllm.moe_of(use_ag_rs_all2all_kernels=False), None, allow_new_interface=True) == "vLLM's own"
        assert make(fake_vllm.moe_of(), None) == "vLLM's own"
        for fields, more, says in (({}, {"use_monolithic": True}, "use_monolithic"),
                                   ({"is_lora_enabled": True}, {}, "is_lora_enabled"),
                                   ({"in_dtype": torch.float16}, {}, "in_dtype is torch.float16")):
            with pytest.raises(NotImplementedError, match=says):
                make(fake_vllm.moe_of(**fields), None, allow_new_interface=True, **more)
    modules = fake_vllm.make(types.SimpleNamespace(cpu_group=None))
    with turned_on(modules, monkeypatch, "fp8_block128") as adapter:
        adapter.register()
        kernel = modules[f"{fake_vllm.FUSED_MOE}.all2all_utils"].maybe_make_prepare_finalize(
            fake_vllm.moe_of(), None, allow_new_interface=True)
        with pytest.raises(NotImplementedError, match="'block_shape': None.*use FERRY_VLLM=bf16"):
            kernel.post_init_setup(fake_vllm.Experts(modules, MATRICES, fake_vllm.quant_config_of(), reduces=True))
    with turned_on({}, monkeypatch, "int4") as adapter, pytest.raises(ValueError, match="FERRY_VLLM is 'int4'; it must be"):
        adapter.register()


def test_it_costs_nothing_where_nobody_asks():
    program = ("import sys, ferry.adapters.vllm as adapter; adapter.register(); "
               "assert not {'torch', 'vllm', 'ferry.torch'} & sys.modules.keys()")
    environment = {name: value for name, value in os.environ.items() if name != "FERRY_VLLM"}
    for value in ({}, {"FERRY_VLLM": "0"}):
        subprocess.run([sys.executable, "-c", program], check=True, timeout=60, env=environment | value)


def test_the_entry_point():
    found = [entry for entry in importlib.metadata.entry_points(group="vllm.general_plugins") if entry.name == "ferry"]
    assert [entry.value for entry in found] == ["ferry.adapters.vllm:register"] and callable(found[0].load())
