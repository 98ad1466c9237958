"""What SGLang's MoE layers call to dispatch and combine, with Ferry underneath. Needs SGLang.

Its formats are those of SGLang's backend "deepep", since its matmuls know them: of the normal mode one row for each
token that comes, as rows by_source are; of the low-latency mode a fixed room for each expert, as rows padded are.
"""

from __future__ import annotations

import os
from typing import Any

import torch

from .._errors import InvalidArgument, Unsupported
from .._halves import give_up_half
from ..torch import Exchange
from ._interface import require
from ._shared import deadline_of, exchange_of

_sglang = require("sglang")
_FORMATS = {"bf16": "bf16", "fp8": "fp8_block128"}  # by SGLang's names of what travels


class FerryDispatcher(_sglang.BaseDispatcher):  # type: ignore[misc, name-defined]
    """In the normal mode experts weight their results and add them up, and the host waits for counts. In the
    low-latency mode combine weights them, and nobody waits, so CUDA graphs may have it."""

    def __init__(self, config: Any, mode: Any, group: Any) -> None:
        super().__init__()
        self.runner_backend = config.runner_backend
        self.dispatch_mode: Any = None  # of the newest dispatch; get_deepep_output_dtype reads it, too
        self._config, self._mode, self._group = config, mode, group
        self._exchanges: dict[bool, Exchange] = {}  # by whether the mode is normal

    def set_quant_config(self, quant_config: dict[str, Any]) -> None:
        super().set_quant_config(quant_config)
        self._exchanges = {}

    def dispatch(self, hidden_states: torch.Tensor, topk_output: Any) -> Any:
        """DeepEPNormalDispatchOutput or DeepEPLLDispatchOutput, as the mode and the batch have it."""
        self.dispatch_mode = self._mode.resolve(_sglang.get_is_extend_in_batch())
        exchange = self._exchange(hidden_states.device)
        ids, weights = topk_output.topk_ids, topk_output.topk_weights
        given = (hidden_states.contiguous(), ids.contiguous(), weights.to(torch.float32).contiguous())
        if self.dispatch_mode.is_normal():
            return self._normal(exchange, *given)
        return self._low_latency(exchange, topk_output, *given)

    def combine(self, combine_input: Any) -> torch.Tensor:
        """The sums [n, hidden] of this rank's tokens, as bfloat16."""
        if self.dispatch_mode is None:
            raise InvalidArgument("combine before the first dispatch")
        rows = combine_input.hidden_states
        exchange = self._exchange(rows.device)
        return exchange.combine(rows.reshape(-1, rows.shape[-1]).contiguous(), dtype=torch.bfloat16)

    def _normal(self, exchange: Exchange, tokens: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> Any:
        exchange.dispatch_async(tokens, ids, weights, row_order="by_source")
        try:
            counts = exchange.wait_for_counts()
            arrived = exchange.dispatch_wait(extra=() if exchange.format.name == "bf16" else ("row_scales",))
        except BaseException as error:
            give_up_half(exchange._base, error)
            raise
        multiple = 128 if _sglang.ENABLE_JIT_DEEPGEMM else 1
        return _sglang.DeepEPNormalDispatchOutput(
            hidden_states=arrived.payload, hidden_states_scale=arrived.row_scales,
            topk_ids=arrived.row_topk_ids.to(torch.int64), topk_weights=arrived.row_topk_weights,
            num_recv_tokens_per_expert=[-(-count // multiple) * multiple for count in counts.by_expert])

    def _low_latency(self, exchange: Exchange, topk_output: Any, tokens: torch.Tensor, ids: torch.Tensor,
                     weights: torch.Tensor) -> Any:
        arrived = exchange.dispatch(tokens, ids, weights, row_order="padded",
                                    row_capacity=exchange.most_rows("padded"))
        entries = tokens.shape[0] * exchange.ranks * exchange.top_k
        return _sglang.DeepEPLLDispatchOutput(
            hidden_states=arrived.payload.view(exchange.groups, -1, exchange.hidden),
            hidden_states_scale=None if arrived.scales is None else arrived.scales.transpose(1, 2),
            topk_ids=topk_output.topk_ids, topk_weights=topk_output.topk_weights, masked_m=arrived.counts,
            expected_m=(entries + exchange.experts) // exchange.experts)

    def _exchange(self, device: torch.device) -> Exchange:
        """That of the newest dispatch's mode. The first call makes it: collective over the group."""
        normal = self.dispatch_mode.is_normal()
        found = self._exchanges.get(normal)
        if found is None:
            config = self._config
            found = self._exchanges[normal] = exchange_of(
                self._group, device, experts=config.num_experts, top_k=config.top_k, hidden=config.hidden_size,
                max_tokens=_max_tokens(normal), format=self._format(normal),
                row_orders=["by_source" if normal else "padded"],
                deadline=deadline_of("FERRY_SGLANG_DEADLINE"))
            if found.groups != config.num_local_experts:
                raise Unsupported(f"rank {found.rank} has {config.num_local_experts} of {config.num_experts} experts in "
                                  f"SGLang, and {found.groups} in Ferry, which deals them out evenly")
        return found

    def _format(self, normal: bool) -> str:
        kind = str(_sglang.get_deepep_output_dtype(self).value)
        if kind not in _FORMATS:
            raise NotImplementedError(f"deepep_dispatcher_output_dtype is {kind}: Ferry's adapter has bf16 and fp8")
        if kind == "fp8" and _sglang.DEEPGEMM_SCALE_UE8M0:
            raise NotImplementedError("DEEPGEMM_SCALE_UE8M0: scales that DeepGEMM wants packed on this GPU; use "
                                      "--deepep-dispatcher-output-dtype bf16")
        return "bf16" if normal and not _sglang.ENABLE_JIT_DEEPGEMM else _FORMATS[kind]


def make(original: Any, config: Any, quant_method: Any) -> Any:
    """A dispatcher of Ferry for the backend deepep; for others SGLang's own."""
    if not _sglang.get_moe_a2a_backend().is_deepep():
        return original(config, quant_method=quant_method)
    refused = {"enable_two_batch_overlap": _sglang.is_tbo_enabled(),
               "enable_single_batch_overlap": _sglang.is_sbo_enabled(),
               "num_fused_shared_experts": config.num_fused_shared_experts,
               "enable_eplb": getattr(_sglang.get_server_args(), "enable_eplb", False)}
    for name, value in refused.items():
        if value:
            raise NotImplementedError(f"{name} is {value}: Ferry's adapter for SGLang does not have it")
    if config.params_dtype != torch.bfloat16:
        raise NotImplementedError(f"params_dtype is {config.params_dtype}: tokens travel as bfloat16 or E4M3 of it; "
                                  "--dtype bfloat16 makes them so")
    return FerryDispatcher(config, _sglang.get_deepep_mode(), _sglang.get_parallel().tp_group.cpu_group)


def _max_tokens(normal: bool) -> int:
    name = "FERRY_SGLANG_MAX_TOKENS" if normal else "SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK"
    text = os.environ.get(name, "" if normal else "128")
    if not text.isdecimal() or int(text) < 1:
        raise InvalidArgument(f"{name} is {text!r}; it must be the most tokens that a rank ever dispatches" + (
            " in the normal mode, --chunked-prefill-size if that is of one rank" if normal else ""))
    return int(text)
