"""The adapter for torchtitan, in an engine built from the record of its interface."""

import dataclasses
import importlib.util
import os

import dense
import fake_torchtitan
import pytest
import rank_processes
import recorded
import torch
import torch.distributed as dist

from ferry.adapters import _interface
from ferry.torch import _functions
from oracle import make_layer

RECORD = _interface.record_of("torchtitan")
TARGET = "ferry.adapters.torchtitan.use_ferry"
EXPERTS, TOP_K, HIDDEN, COUNTS = 6, 3, 64, [4, 0, 6]
LAYER = make_layer(3, EXPERTS, TOP_K, HIDDEN, COUNTS)


def given(rank):
    """Tokens, scores and ids: as a top-k gives them, so without -1."""
    generator = torch.Generator().manual_seed(rank)
    ids = torch.stack([torch.randperm(EXPERTS, generator=generator)[:TOP_K] for _ in range(COUNTS[rank])]) \
        if COUNTS[rank] else torch.empty((0, TOP_K), dtype=torch.int64)
    return torch.from_numpy(LAYER.tokens[rank]) / 8, ids, torch.rand((COUNTS[rank], TOP_K), generator=generator)


MATRICES = torch.randn((EXPERTS, HIDDEN, HIDDEN), generator=torch.Generator().manual_seed(9)) / 8
OF_SUMS = [torch.randint(-3, 4, (count, HIDDEN), generator=torch.Generator().manual_seed(1)).float()
           for count in COUNTS]


def experts(matrices):
    def call(rows, counts):
        assert counts.shape == matrices.shape[:1]
        place = torch.arange(rows.shape[0])
        group = (place[:, None] >= counts.cumsum(0)[None, :]).sum(1).clamp(max=len(matrices) - 1)
        return torch.tanh((rows[:, None, :] @ matrices[group]).squeeze(1))
    return call


def turn_on(modules, cfg, **kwargs):
    """What torchtitan does with --override.imports 'TARGET={...}', and with the config that it gets."""
    target, factory = modules["torchtitan"].overrides[TARGET]
    assert isinstance(cfg, target)
    return factory(cfg, **kwargs).build()


def forward_and_back(dispatcher, rank, size, *, compiled=False):
    tokens, ids, scores = given(rank)
    tokens.requires_grad_()
    scores.requires_grad_()
    per_rank = EXPERTS // size
    mine = MATRICES[rank * per_rank:(rank + 1) * per_rank].clone().requires_grad_()

    def call(tokens, scores, ids, mine):
        return fake_torchtitan.layer(dispatcher, experts(mine), tokens, scores, ids)

    sums = (torch.compile(call, fullgraph=True, backend="aot_eager") if compiled else call)(tokens, scores, ids, mine)
    sums.backward(OF_SUMS[rank])
    return [tensor.detach().numpy() for tensor in (sums, tokens.grad, scores.grad, mine.grad)]


def in_a_group(rank, size, file):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=size)
    modules, found = fake_torchtitan.make(), {}
    mesh = fake_torchtitan.mesh_of(dist.group.WORLD)
    with recorded.installed(modules, "torchtitan"):
        # The backend "standard", which knows no sizes; then one that does, with padded groups.
        cfg = fake_torchtitan.config_of(modules, num_experts=EXPERTS, top_k=TOP_K)
        dispatcher = turn_on(modules, cfg, hidden=HIDDEN, max_tokens=6, result_format="f32", expert_alignment=1)
        other = turn_on(modules, cfg, hidden=HIDDEN, max_tokens=6, result_format="f32", expert_alignment=1)
        for one in (dispatcher, other):
            one.wire_meshes(ep_mesh=mesh)
        assert dispatcher._exchange is other._exchange, "layers of a shape share an exchange"
        found["eager"] = forward_and_back(dispatcher, rank, size)
        with recorded.host_waits_for_nothing():
            found["compiled"] = forward_and_back(dispatcher, rank, size, compiled=True)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(_functions, "_is_fixed", lambda exchange: True)
                found["captured"] = forward_and_back(dispatcher, rank, size)
        padded = turn_on(modules, fake_torchtitan.config_of(
            modules, num_experts=EXPERTS, top_k=TOP_K, hidden_dim=HIDDEN, num_max_tokens_per_rank=6, pad_multiple=16),
            result_format="f32")
        padded.wire_meshes(ep_mesh=mesh)
        found["padded"] = forward_and_back(padded, rank, size)
        tokens, ids, scores = given(rank)
        found["rows"] = padded.dispatch(tokens, scores, ids, None)[1].tolist()
        padded._exchange.close()
    dist.destroy_process_group()
    return found


def test_sums_and_gradients_are_those_of_a_dense_layer(tmp_path):
    found = rank_processes.run(3, in_a_group, os.fspath(tmp_path / "meeting"))
    sums, of_tokens, of_scores, of_matrices = dense.gradients([given(rank) for rank in range(3)], MATRICES, OF_SUMS)
    for how in ("eager", "compiled", "captured", "padded"):
        for rank, one in enumerate(found):
            for got, want in zip(one[how], (sums[rank], of_tokens[rank], of_scores[rank])):
                dense.assert_close(torch.from_numpy(got), want, 3e-6)
        dense.assert_close(torch.cat([torch.from_numpy(one[how][3]) for one in found]), of_matrices, 3e-6)
    assert all(count % 16 == 0 for one in found for count in one["rows"])


def test_without_expert_parallelism_it_is_local():
    modules = fake_torchtitan.make()
    with recorded.installed(modules, "torchtitan"):
        cfg = fake_torchtitan.config_of(modules, num_experts=EXPERTS, top_k=TOP_K)
        dispatcher = turn_on(modules, cfg, hidden=HIDDEN, max_tokens=6)
        dispatcher.wire_meshes(ep_mesh=None)
        tokens, ids, scores = given(0)
        got = fake_torchtitan.layer(dispatcher, experts(MATRICES), tokens, scores, ids)
        dense.assert_close(got, dense.sums(tokens.double(), ids, scores.double(), MATRICES.double()), 3e-6)


def test_it_has_the_recorded_parameters():
    with recorded.installed(fake_torchtitan.make(), "torchtitan") as adapter:
        assert not recorded.differences(RECORD, adapter.FerryTokenDispatcher, "BaseEPTokenDispatcher")


def test_what_is_refused():
    modules = fake_torchtitan.make()
    with recorded.installed(modules, "torchtitan"):
        cfg = fake_torchtitan.config_of(modules, num_experts=EXPERTS, top_k=TOP_K)
        with pytest.raises(ValueError, match="does not say hidden and max_tokens"):
            turn_on(modules, cfg)
        with pytest.raises(ValueError, match="does not say max_tokens"):
            turn_on(modules, cfg, hidden=64)
        drops = fake_torchtitan.config_of(modules, num_experts=EXPERTS, top_k=TOP_K, non_blocking_capacity_factor=0.5)
        with pytest.raises(NotImplementedError, match="non_blocking_capacity_factor is 0.5"):
            turn_on(modules, drops)


def in_torchtitan(rank, size, file):
    """Its own dispatcher beside Ferry's, which its own overrides put in place of one."""
    from torchtitan.config import Configurable, OverrideConfig, apply_overrides  # pylint: disable=import-error
    from torchtitan.distributed.utils import set_spmd_backend  # pylint: disable=import-error
    from torchtitan.models.common.token_dispatcher import AllToAllTokenDispatcher  # pylint: disable=import-error

    class Model(Configurable):
        @dataclasses.dataclass(kw_only=True, slots=True)
        class Config(Configurable.Config):
            dispatcher: AllToAllTokenDispatcher.Config

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=size)
    set_spmd_backend("partial_dtensor")
    model = Model.Config(dispatcher=AllToAllTokenDispatcher.Config(num_experts=EXPERTS, top_k=TOP_K))
    own = model.dispatcher.build()
    apply_overrides(OverrideConfig(imports=[(TARGET, {"hidden": HIDDEN, "max_tokens": 6, "result_format": "f32"})]),
                    model)
    dispatchers = [own, model.dispatcher.build()]
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (size,), mesh_dim_names=("ep",))
    found = []
    for dispatcher in dispatchers:
        dispatcher.wire_meshes(ep_mesh=mesh)
        found.append((type(dispatcher).__name__, forward_and_back(dispatcher, rank, size)))
    dispatchers[1]._exchange.close()
    dist.destroy_process_group()
    return found


@pytest.mark.skipif(importlib.util.find_spec("torchtitan") is None, reason="torchtitan is not installed")
def test_in_torchtitan_itself(tmp_path):
    for (own, want), (ours, got) in rank_processes.run(3, in_torchtitan, os.fspath(tmp_path / "meeting")):
        assert (own, ours) == ("AllToAllTokenDispatcher", "FerryTokenDispatcher")
        for one, other in zip(got, want):
            dense.assert_close(torch.from_numpy(one), torch.from_numpy(other).double(), 3e-6)
