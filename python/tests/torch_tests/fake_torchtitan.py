"""A torchtitan of the recorded names: overrides, configs that build their owners, meshes, and a layer of experts."""

import types

import recorded
import torch

from ferry.adapters import _interface


def _of_dispatchers(module, overrides):
    local, base = module.LocalTokenDispatcher, module.BaseEPTokenDispatcher

    def build(self, **kwargs):
        return type(self)._owner(self, **kwargs)

    def init_subclass(cls, **kwargs):
        super(local, cls).__init_subclass__(**kwargs)
        if "Config" in vars(cls):
            assert "__slots__" in vars(cls.Config), "torchtitan refuses a Config without slots"
            cls.Config._owner = cls

    def init_local(self, config):
        self.num_experts, self.top_k = config.num_experts, config.top_k

    def init_base(self, config):
        local.__init__(self, config)
        self.ep_mesh = None

    def wire_meshes(self, *, ep_mesh):
        self.ep_mesh = ep_mesh
        self.init_buffer()

    def dispatch(self, x_TD, topk_scores_TK, topk_expert_ids_TK, num_local_tokens_per_expert_E):
        order = topk_expert_ids_TK.flatten().argsort(stable=True)
        return x_TD[order // self.top_k], num_local_tokens_per_expert_E, (order, topk_scores_TK.flatten()[order])

    def combine(self, routed_output_RD, metadata, x_TD):
        order, scores = metadata
        return torch.zeros_like(x_TD).index_add(0, order // self.top_k, routed_output_RD * scores[:, None])

    recorded.give(local.Config, build=build)
    local.Config = recorded.config(local.Config)
    base.Config = recorded.config(type("Config", (local.Config,), {"__annotations__": {}}))
    recorded.give(local, __init__=init_local, dispatch=dispatch, combine=combine)
    recorded.give(base, __init__=init_base, wire_meshes=wire_meshes)
    local.__init_subclass__ = classmethod(init_subclass)

    def override(*, target, fqns=None, description="", exact=False):
        def register(factory):
            overrides[f"{factory.__module__}.{factory.__name__}"] = (target, factory)
            return factory
        return register

    return override


def make():
    """Its modules; module torchtitan has `overrides`."""
    modules = recorded.modules_of(_interface.record_of("torchtitan"))
    modules["torchtitan"].overrides = overrides = {}
    override = _of_dispatchers(modules["torchtitan.models.common.token_dispatcher"], overrides)
    recorded.give(modules["torchtitan.config"], override=override)
    return modules


def config_of(modules, **fields):
    """A config of a backend that has these fields, more than the recorded ones."""
    base = modules["torchtitan.models.common.token_dispatcher"].BaseEPTokenDispatcher.Config
    known = {name: fields.pop(name) for name in ("num_experts", "top_k")}
    made = type("BackendConfig", (base,), {"__annotations__": {}})(**known)
    for name, value in fields.items():
        object.__setattr__(made, name, value)
    return made


def layer(dispatcher, experts, tokens, scores, ids):
    """What a layer does with its dispatcher. `experts`: (rows, rows of each expert) -> results."""
    counts = torch.bincount(ids.flatten(), minlength=dispatcher.num_experts)
    rows, of_experts, metadata = dispatcher.dispatch(tokens, scores, ids, counts)
    return dispatcher.combine(experts(rows, of_experts), metadata, tokens)


def mesh_of(group, device_type="cpu"):
    return types.SimpleNamespace(get_group=lambda: group, device_type=device_type)
