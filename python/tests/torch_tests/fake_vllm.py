"""A vLLM of the recorded names: a modular kernel's steps, and experts in its standard format."""

import types

import recorded
import torch

from ferry.adapters import _interface

FUSED_MOE = "vllm.model_executor.layers.fused_moe"


def make(manager):
    """Its modules; `manager`: what owns the group of expert parallelism. One module has imported the function that
    adapters replace, as those of quantized layers have."""
    modules = recorded.modules_of(_interface.record_of("vllm"))
    quantized = modules["vllm"].quantized = []  # what was given to be quantized

    def get_ep_all2all_manager(ep_group=None):
        return manager

    def maybe_make_prepare_finalize(moe, quant_config, routing_tables=None, allow_new_interface=False,
                                    use_monolithic=False, all2all_manager=None, input_dtype=None):
        return "vLLM's own"

    def moe_kernel_quantize_input(A, A_scale, quant_dtype, per_act_token_quant, block_shape=None,
                                  is_scale_swizzled=True, is_scale_transposed=False, quantization_emulation=False,
                                  mx_alignment=0):
        quantized.append(A.clone())
        return A * 2, torch.full((1,), 0.5)

    def apply(self, output, fused_expert_output, topk_weights, topk_ids, apply_router_weight_on_input):
        assert output is None and fused_expert_output.shape[:2] == topk_ids.shape
        weights = torch.ones_like(topk_weights) if apply_router_weight_on_input else topk_weights
        return (fused_expert_output.float() * weights[:, :, None]).sum(1).to(fused_expert_output.dtype)

    recorded.give(modules[f"{FUSED_MOE}.all2all_utils"], get_ep_all2all_manager=get_ep_all2all_manager,
                  maybe_make_prepare_finalize=maybe_make_prepare_finalize)
    recorded.give(modules[f"{FUSED_MOE}.utils"], moe_kernel_quantize_input=moe_kernel_quantize_input)
    recorded.give(modules[f"{FUSED_MOE}.topk_weight_and_reduce"].TopKWeightAndReduceContiguous, apply=apply)
    modules[f"{FUSED_MOE}.modular_kernel"].FusedMoEActivationFormat.Standard = "standard"
    importer = modules[f"{FUSED_MOE}.importer"] = types.ModuleType(f"{FUSED_MOE}.importer")
    importer.maybe_make_prepare_finalize = maybe_make_prepare_finalize
    return modules


def moe_of(**fields):
    """A FusedMoEConfig: bf16 on a CPU, of the default backend."""
    parallel = types.SimpleNamespace(use_ag_rs_all2all_kernels=fields.pop("use_ag_rs_all2all_kernels", True))
    return types.SimpleNamespace(**{"device": "cpu", "in_dtype": torch.bfloat16, "is_lora_enabled": False,
                                    "moe_parallel_config": parallel, **fields})


def quant_config_of(**fields):
    return types.SimpleNamespace(**{
        "quant_dtype": None, "block_shape": None, "per_act_token_quant": False, "a1_scale": None, "a1_gscale": None,
        "is_block_quantized": False, "is_scale_swizzled": True, "mx_alignment": 0, **fields})


class Experts:
    """Expert e makes tanh of its rows times matrix e. `reduces`: it weights and adds up the results of a row itself."""

    expects_unquantized_inputs = False

    def __init__(self, modules, matrices, quant_config, *, reduces):
        self.names = modules[f"{FUSED_MOE}.topk_weight_and_reduce"]
        self.matrices, self.quant_config, self.reduces = matrices, quant_config, reduces
        self.entries = 0  # that it was given: pairs of a token and an expert of this rank
        self.empty_rows = 0  # that it was given: without an expert of this rank

    def finalize_weight_and_reduce_impl(self):
        if self.reduces:
            return types.SimpleNamespace(apply=lambda output, fused_expert_output, **_: fused_expert_output)
        return self.names.TopKWeightAndReduceDelegate()

    def __call__(self, rows, scales, ids, weights, expert_map, apply_router_weight_on_input):
        values = rows.float()
        if scales is not None:
            values = values * scales.repeat_interleave(rows.shape[1] // scales.shape[-1], dim=-1) \
                if scales.dim() == 2 else values * scales
        local = expert_map[ids.long()]  # [N, K], -1 where the expert is elsewhere
        assert ids.dtype == torch.int32 and not weights[local < 0].any()
        self.empty_rows += int((local < 0).all(1).sum())
        self.entries += int((local >= 0).sum())
        results = torch.zeros((*ids.shape, rows.shape[1]))
        for k in range(ids.shape[1]):
            for expert, matrix in enumerate(self.matrices):
                mine = local[:, k] == expert
                results[mine, k] = torch.tanh(values[mine] @ matrix)
        if self.reduces:
            if not apply_router_weight_on_input:
                results = results * weights[:, :, None]
            results = results.sum(1)
        return results.bfloat16()


def layer(kernel, experts, tokens, weights, ids, shape, *, apply_router_weight_on_input=False):
    """What FusedMoEKernel does with both halves, after it was made."""
    output = torch.empty_like(tokens)
    rows, scales, _, row_ids, row_weights = kernel.prepare(
        tokens, weights, ids, shape["experts"], shape["expert_map"], apply_router_weight_on_input,
        experts.quant_config, defer_input_quant=experts.expects_unquantized_inputs)
    made = torch.empty((0, tokens.shape[1]), dtype=tokens.dtype)  # nothing came: vLLM does not call the experts
    if len(rows):
        made = experts(rows, scales, row_ids, row_weights, shape["expert_map"], apply_router_weight_on_input)
    kernel.finalize(output, made, row_weights, row_ids, apply_router_weight_on_input,
                    experts.finalize_weight_and_reduce_impl())
    return output
