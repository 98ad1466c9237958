"""What vLLM's modular kernels call for expert-parallel layers, with Ferry underneath. Needs vLLM.

The format is vLLM's "standard" one: a row for each token that has an expert of this rank, with all its ids and weights,
as rows by_source are. Experts weight and add up their results of a row; combine adds up those of all ranks.
"""

from __future__ import annotations

import sys
import types
from typing import Any

import torch

from .._errors import InvalidArgument, Unsupported
from ..torch import Exchange
from ._interface import require
from ._shared import deadline_of, exchange_of

_vllm = require("vllm")


class FerryPrepareAndFinalize(_vllm.FusedMoEPrepareAndFinalizeModular):  # type: ignore[misc, name-defined]
    """Dispatch as `prepare`, combine as `finalize`.

    Eager calls take the rows that come, for which the host waits. While a CUDA graph is captured there is room for as
    many tokens of each rank as this one has: vLLM pads the ranks' batches to one size then.
    """

    def __init__(self, moe: Any, format: str, group: Any) -> None:
        super().__init__()
        self._moe, self._format, self._group = moe, format, group
        self._exchange: Exchange | None = None

    @property
    def activation_format(self) -> Any:
        return _vllm.FusedMoEActivationFormat.Standard

    def topk_indices_dtype(self) -> torch.dtype:
        return torch.int32

    def max_num_tokens_per_rank(self) -> None:
        return None

    def num_dispatchers(self) -> int:
        return int(self._group.size())

    def output_is_reduced(self) -> bool:
        return True

    def supports_async(self) -> bool:
        return False

    def post_init_setup(self, fused_experts: Any) -> None:
        """Takes the exchange of this shape, or makes it: collective over the ranks of expert parallelism."""
        if self._format != "bf16":
            _require_block_fp8(fused_experts)
        moe = self._moe
        self._exchange = exchange_of(
            self._group, moe.device, experts=moe.num_experts, top_k=moe.experts_per_token, hidden=moe.hidden_dim,
            max_tokens=moe.max_num_tokens, format=self._format, row_orders=["by_source"],
            deadline=deadline_of("FERRY_VLLM_DEADLINE"))
        if self._exchange.groups != moe.num_local_experts:
            raise Unsupported(f"rank {self._exchange.rank} has {moe.num_local_experts} of {moe.num_experts} experts in "
                              f"vLLM, and {self._exchange.groups} in Ferry, which deals them out evenly")

    def prepare(self, a1: torch.Tensor, topk_weights: torch.Tensor, topk_ids: torch.Tensor, num_experts: int,
                expert_map: torch.Tensor | None, apply_router_weight_on_input: bool, quant_config: Any,
                defer_input_quant: bool = False) -> tuple[torch.Tensor, torch.Tensor | None, None, torch.Tensor,
                                                          torch.Tensor]:
        """(rows, their scales, None, ids [N, K], weights [N, K]); an id of no expert here is one of another rank."""
        if apply_router_weight_on_input:
            if topk_ids.shape[1] != 1:
                raise NotImplementedError(f"apply_router_weight_on_input with {topk_ids.shape[1]} experts a token")
            a1 = a1 * topk_weights.to(a1.dtype)
        exchange = self._made()
        room = exchange.ranks * a1.shape[0] if _is_captured(exchange) else None
        sized = {} if room is None else exchange._sized(room, "by_source")
        arrived = exchange.dispatch(
            a1.contiguous(), topk_ids.contiguous(), topk_weights.to(torch.float32).contiguous(), row_order="by_source",
            row_capacity=room, extra=() if self._format == "bf16" else ("row_scales",), **sized)
        none_here = arrived.row_topk_ids < 0
        elsewhere = num_experts - 1 if exchange.first_expert == 0 else 0  # expert_map has -1 for it
        ids = (arrived.row_topk_ids + exchange.first_expert).masked_fill_(none_here, elsewhere)
        weights = arrived.row_topk_weights.masked_fill(none_here, 0)  # past the last row it is not written
        rows, scales = arrived.payload, arrived.row_scales
        if self._format == "bf16" and not defer_input_quant and quant_config.quant_dtype is not None and rows.numel():
            if room is not None:  # nor are rows; one scale for all of them must not see what lies there
                rows = rows.masked_fill_(none_here.all(1, keepdim=True), 0)
            rows, scales = _quantized(rows, quant_config)
        return rows, scales, None, ids, weights

    def finalize(self, output: torch.Tensor, fused_expert_output: torch.Tensor, topk_weights: torch.Tensor,
                 topk_ids: torch.Tensor, apply_router_weight_on_input: bool, weight_and_reduce_impl: Any) -> None:
        """Fills `output`: for each token of this rank the sum of what its experts made, times their weights."""
        if fused_expert_output.numel():
            if isinstance(weight_and_reduce_impl, _vllm.TopKWeightAndReduceDelegate):
                weight_and_reduce_impl = _vllm.TopKWeightAndReduceContiguous()
            fused_expert_output = weight_and_reduce_impl.apply(
                output=None, fused_expert_output=fused_expert_output, topk_weights=topk_weights, topk_ids=topk_ids,
                apply_router_weight_on_input=apply_router_weight_on_input)
        self._made().combine(fused_expert_output.contiguous(), out=output)

    def _made(self) -> Exchange:
        if self._exchange is None:
            raise InvalidArgument("FerryPrepareAndFinalize before post_init_setup, which vLLM's FusedMoEKernel calls")
        return self._exchange


def install(format: str) -> None:
    """From now on vLLM's backend allgather_reducescatter, the default, is Ferry. In all modules that have the name; again:
    does nothing."""
    original = _vllm.maybe_make_prepare_finalize

    def maybe_make_prepare_finalize(moe: Any, quant_config: Any, routing_tables: Any = None,
                                    allow_new_interface: bool = False, use_monolithic: bool = False,
                                    all2all_manager: Any = None, input_dtype: Any = None) -> Any:
        if not (moe.moe_parallel_config.use_ag_rs_all2all_kernels and allow_new_interface):
            return original(moe, quant_config, routing_tables, allow_new_interface, use_monolithic, all2all_manager,
                            input_dtype)
        _require_possible(moe, use_monolithic)
        manager = _vllm.get_ep_all2all_manager() if all2all_manager is None else all2all_manager
        return FerryPrepareAndFinalize(moe, format, manager.cpu_group)

    for module in list(sys.modules.values()):
        if isinstance(module, types.ModuleType) and vars(module).get("maybe_make_prepare_finalize") is original:
            setattr(module, "maybe_make_prepare_finalize", maybe_make_prepare_finalize)


def _require_possible(moe: Any, use_monolithic: bool) -> None:
    if use_monolithic:
        raise NotImplementedError("use_monolithic: experts that route by themselves want router logits, which Ferry does "
                                  "not carry; choose others with --moe-backend, such as triton")
    if moe.is_lora_enabled:
        raise NotImplementedError("is_lora_enabled: Ferry does not carry which LoRA a token has")
    if moe.in_dtype != torch.bfloat16:
        raise NotImplementedError(f"in_dtype is {moe.in_dtype}: tokens travel as bfloat16; --dtype bfloat16 makes them so")


def _require_block_fp8(experts: Any) -> None:
    config = experts.quant_config
    found = {"quant_dtype": config.quant_dtype, "block_shape": config.block_shape,
             "expects_unquantized_inputs": experts.expects_unquantized_inputs}
    if found != {"quant_dtype": torch.float8_e4m3fn, "block_shape": [128, 128], "expects_unquantized_inputs": False}:
        raise NotImplementedError(f"FERRY_VLLM=fp8_block128 is for experts that take E4M3 with a scale for 128 columns; "
                                  f"{type(experts).__name__} has {found}; use FERRY_VLLM=bf16")


def _quantized(rows: torch.Tensor, config: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
    """As the experts want them, by vLLM."""
    found: tuple[torch.Tensor, torch.Tensor | None] = _vllm.moe_kernel_quantize_input(
        rows, config.a1_gscale if config.quant_dtype == "nvfp4" else config.a1_scale, quant_dtype=config.quant_dtype,
        per_act_token_quant=config.per_act_token_quant, block_shape=config.block_shape,
        is_scale_swizzled=config.is_scale_swizzled, mx_alignment=config.mx_alignment)
    return found


def _is_captured(exchange: Exchange) -> bool:
    return exchange.device.type == "cuda" and torch.cuda.is_current_stream_capturing()
