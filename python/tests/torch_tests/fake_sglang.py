"""An SGLang of the recorded names: modes, plugins' hooks, a layer, and experts for both formats of "deepep"."""

import enum
import functools
import types
import typing

import recorded
import torch

from ferry.adapters import _interface

MOE = "sglang.srt.layers.moe"
LAYER = f"{MOE}.fused_moe_triton.layer"


class Mode(enum.Enum):
    """As DeepEPMode."""

    NORMAL = "normal"
    LOW_LATENCY = "low_latency"
    AUTO = "auto"

    def resolve(self, is_extend_in_batch):
        return self if self != Mode.AUTO else Mode.NORMAL if is_extend_in_batch else Mode.LOW_LATENCY

    def is_normal(self):
        return self == Mode.NORMAL


class Dtype(enum.Enum):
    """As DispatcherOutputDtype."""

    BF16 = "bf16"
    FP8 = "fp8"
    NVFP4 = "nvfp4"


class Settings(types.SimpleNamespace):
    """What the engine was started with, and the batch at hand."""

    def __init__(self, **given):
        super().__init__(**{"backend": "deepep", "mode": Mode.AUTO, "dtype": Dtype.BF16, "extends": True, "group": None,
                            "tbo": False, "sbo": False, "eplb": False, "deep_gemm": True, "packed_scales": False, **given})


def make(settings):
    """Its modules."""
    record = _interface.record_of("sglang")
    modules = recorded.modules_of(record)
    hooks = []

    def register(cls, target, hook, hook_type=None, *, source=None):
        hooks.append((target, hook, hook_type))

    def create_moe_dispatcher(moe_runner_config, quant_method):
        return "SGLang's own"

    def init(self):
        self.quant_config, self.runner_backend = {}, None

    def set_quant_config(self, quant_config):
        self.quant_config = quant_config

    def get_deepep_output_dtype(self):
        assert self.dispatch_mode in (Mode.NORMAL, Mode.LOW_LATENCY)
        return Dtype(self.quant_config.get("dispatcher_output_dtype", settings.dtype.value))

    registry = modules["sglang.srt.plugins.hook_registry"]
    registry.HookType.AROUND = "around"
    registry.HookRegistry.register = classmethod(register)
    registry.hooks = hooks
    recorded.give(modules[LAYER], create_moe_dispatcher=create_moe_dispatcher)
    recorded.give(modules[f"{MOE}.token_dispatcher.base"].BaseDispatcher, __init__=init, set_quant_config=set_quant_config)
    deepep = modules[f"{MOE}.token_dispatcher.deepep"]
    for name, wanted in record["modules"][deepep.__name__].items():
        setattr(deepep, name, typing.NamedTuple(name, [(field, object) for field in wanted["fields"]]))
    utils = modules[f"{MOE}.utils"]
    utils.DeepEPMode, utils.DispatcherOutputDtype = Mode, Dtype
    recorded.give(
        utils, get_moe_a2a_backend=lambda: types.SimpleNamespace(is_deepep=lambda: settings.backend == "deepep"),
        get_deepep_mode=lambda: settings.mode, get_deepep_output_dtype=get_deepep_output_dtype,
        is_tbo_enabled=lambda: settings.tbo, is_sbo_enabled=lambda: settings.sbo)
    recorded.give(modules["sglang.srt.layers.dp_attention"], get_is_extend_in_batch=lambda: settings.extends)
    recorded.give(
        modules["sglang.srt.runtime_context"], get_server_args=lambda: types.SimpleNamespace(enable_eplb=settings.eplb),
        get_parallel=lambda: types.SimpleNamespace(tp_group=types.SimpleNamespace(cpu_group=settings.group)))
    gemm = modules["sglang.srt.layers.deep_gemm_wrapper"]
    gemm.ENABLE_JIT_DEEPGEMM, gemm.DEEPGEMM_SCALE_UE8M0 = settings.deep_gemm, settings.packed_scales
    return modules


def apply_hooks(modules):
    """What SGLang does when all plugins have registered theirs."""
    for target, hook, kind in modules["sglang.srt.plugins.hook_registry"].hooks:
        assert (target, kind) == (f"{LAYER}.create_moe_dispatcher", "around")
        original = modules[LAYER].create_moe_dispatcher

        @functools.wraps(original)
        def wrapper(*args, **kwargs):
            return hook(original, *args, **kwargs)

        modules[LAYER].create_moe_dispatcher = wrapper


def config_of(**fields):
    """A MoeRunnerConfig."""
    return types.SimpleNamespace(**{"params_dtype": torch.bfloat16, "runner_backend": None, "num_fused_shared_experts": 0,
                                    **fields})


def _decoded(rows, scales):
    return rows.float() if scales is None else rows.float() * scales.repeat_interleave(128, dim=-1)


def experts_of_normal(deepep, matrices, came, multiple):
    """Expert e makes tanh of its rows times matrix e; weights and adds up what it made of a row."""
    rows, scales, ids, weights, counts = came
    assert ids.dtype == torch.int64 and ids.shape == weights.shape and (ids >= 0).any(1).all()
    assert counts == [-(-int((ids == expert).sum()) // multiple) * multiple for expert in range(len(matrices))]
    values, sums = _decoded(rows, scales), torch.zeros(rows.shape)
    for expert, matrix in enumerate(matrices):
        for k in range(ids.shape[1]):
            mine = ids[:, k] == expert
            sums[mine] += weights[mine, k, None] * torch.tanh(values[mine] @ matrix)
    return deepep.DeepEPNormalCombineInput(sums.bfloat16(), ids, weights)


def experts_of_low_latency(deepep, matrices, came, most):
    """The same, unweighted, on the rows that came; the others become infinite."""
    rows, scales, ids, weights, masked_m, expected_m = came
    assert rows.shape[:2] == (len(matrices), most) and masked_m.dtype == torch.int32 and expected_m >= 1
    assert scales is None or scales.shape == (*rows.shape[:2], rows.shape[2] // 128)
    results = torch.full(rows.shape, float("inf"))
    for expert, count in enumerate(masked_m.tolist()):
        mine = slice(0, count)
        values = _decoded(rows[expert, mine], None if scales is None else scales[expert, mine])
        results[expert, mine] = torch.tanh(values @ matrices[expert])
    return deepep.DeepEPLLCombineInput(results.bfloat16(), ids, weights)
