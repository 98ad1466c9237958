"""MoELayer on thread ranks, beside the same layer in plain torch."""

import copy

import dense
import devices
import pytest
import torch
import torch.utils.checkpoint
from torch.nn import functional

import ferry
import ferry.torch

RANKS, EXPERTS, TOP_K, HIDDEN, INTER = 3, 7, 3, 64, 32
COUNTS = [5, 0, 4]


def random(shape, seed, scale=1.0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale


PARAMETERS = {"gate_up": random((EXPERTS, HIDDEN, 2 * INTER), 1, HIDDEN**-0.5),
              "down": random((EXPERTS, INTER, HIDDEN), 2, INTER**-0.5),
              "router": random((EXPERTS, HIDDEN), 3, HIDDEN**-0.5),
              "shared_gate_up": random((2 * INTER, HIDDEN), 4, HIDDEN**-0.5),
              "shared_down": random((HIDDEN, INTER), 5, INTER**-0.5)}
TOKENS = [random((count, HIDDEN), 10 + rank).bfloat16().float() for rank, count in enumerate(COUNTS)]
OF_SUMS = [random((count, HIDDEN), 20 + rank).bfloat16().float() for rank, count in enumerate(COUNTS)]


def dense_layer(tokens, parameters, shared):
    """In float64, every expert on every token."""
    scores = torch.softmax(functional.linear(tokens, parameters["router"]), -1)
    weights, ids = torch.topk(scores, TOP_K)
    weights = weights / weights.sum(-1, keepdim=True)
    found = torch.zeros_like(tokens)
    for number in range(EXPERTS):
        results = ferry.torch.swiglu(tokens @ parameters["gate_up"][number]) @ parameters["down"][number]
        found = found + results * torch.where(ids == number, weights, 0).sum(-1, keepdim=True)
    if shared:
        found = found + functional.linear(
            ferry.torch.swiglu(functional.linear(tokens, parameters["shared_gate_up"])), parameters["shared_down"])
    return found


def make_layer(exchange, shared, dtype=torch.float32):
    layer = ferry.torch.MoELayer(exchange, INTER, shared_inter=INTER if shared else 0, dtype=dtype)
    own = slice(exchange.first_expert, exchange.first_expert + exchange.groups)
    with torch.no_grad():
        layer.gate_up.copy_(PARAMETERS["gate_up"][own])
        layer.down.copy_(PARAMETERS["down"][own])
        layer.router.linear.weight.copy_(PARAMETERS["router"])
        if shared:
            layer.shared_gate_up.weight.copy_(PARAMETERS["shared_gate_up"])
            layer.shared_down.weight.copy_(PARAMETERS["shared_down"])
    return layer


def want_of(tokens, shared):
    parameters = {name: value.double().requires_grad_() for name, value in PARAMETERS.items()}
    given = [one.double().requires_grad_() for one in tokens]
    results = [dense_layer(one, parameters, shared) for one in given]
    sum((result * of).sum() for result, of in zip(results, OF_SUMS)).backward()
    return results, given, {name: value.grad for name, value in parameters.items() if value.grad is not None}


def on_rank(world, *, shared=False, dtype=torch.float32, checkpoint=False, rows=None, **options):
    with ferry.torch.Exchange(world, experts=EXPERTS, top_k=TOP_K, max_tokens=5, hidden=HIDDEN, backward="bf16",
                              **options) as exchange:
        layer = make_layer(exchange, shared, dtype)
        layer.rows = exchange.most_rows() if rows == "most" else rows
        tokens = TOKENS[world.rank].clone().to(exchange.device, dtype).requires_grad_()
        if checkpoint:
            sums = torch.utils.checkpoint.checkpoint(layer, tokens, use_reentrant=False)
        else:
            sums = layer(tokens)
        sums.backward(OF_SUMS[world.rank].to(exchange.device, dtype))
        of_parameters = {name: devices.on_cpu(value.grad) for name, value in layer.named_parameters()}
        return devices.on_cpu(sums.detach()), devices.on_cpu(tokens.grad), of_parameters


def run(**options):
    return ferry.run_ranks(RANKS, lambda world: on_rank(world, **options))


def compare(found, want, room):
    results, given, of_parameters = want
    for rank, (sums, of_tokens, _) in enumerate(found):
        dense.assert_close(sums, results[rank], room)
        dense.assert_close(of_tokens, given[rank].grad, room)
    for name in ("gate_up", "down"):
        dense.assert_close(torch.cat([one[2][name] for one in found]), of_parameters[name], room)
    of_all = {"router.linear.weight": "router", "shared_gate_up.weight": "shared_gate_up",
              "shared_down.weight": "shared_down"}
    for name in found[0][2].keys() & of_all.keys():
        dense.assert_close(sum(one[2][name] for one in found), of_parameters[of_all[name]], room)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("rows", [None, "most"])
def test_in_float32_with_results_in_float32(shared, rows):
    """What is dispatched is bf16 already, and what comes back is not rounded."""
    compare(run(shared=shared, rows=rows, result_format="f32"), want_of(TOKENS, shared), 5e-6)


def test_in_bf16():
    compare(run(dtype=torch.bfloat16, expert_alignment=8, shared=True), want_of(TOKENS, True), 0.02)


@pytest.mark.parametrize("name", ["fp8_block128", "mxfp8"])
def test_tokens_in_fp8(name):
    """E4M3 is off by up to 2^-4 of a value. Router and shared expert see the tokens as they are."""
    compare(run(format=name, expert_alignment=8), want_of(TOKENS, False), 0.12)


def test_a_checkpoint_dispatches_again():
    for one, other in zip(run(checkpoint=True), run()):
        assert torch.equal(one[0], other[0]) and torch.equal(one[1], other[1])
        assert all(torch.equal(one[2][name], other[2][name]) for name in one[2])


def test_a_router_of_the_callers_and_any_axes():
    class First(torch.nn.Module):
        def forward(self, tokens):
            return torch.arange(TOP_K).expand(len(tokens), TOP_K), torch.ones(len(tokens), TOP_K)

    def body(world):
        with ferry.torch.Exchange(world, experts=EXPERTS, top_k=TOP_K, max_tokens=6, hidden=HIDDEN) as exchange:
            layer = ferry.torch.MoELayer(exchange, INTER, router=First())
            with torch.no_grad():
                sums = layer(torch.ones(2, 3, HIDDEN))
            assert sums.shape == (2, 3, HIDDEN) and (sums == sums[0, 0]).all()

    ferry.run_ranks(2, body)


def test_a_compiled_layer():
    exchange = ferry.torch.Exchange(ferry.make_thread_worlds(1)[0], experts=EXPERTS, top_k=TOP_K, max_tokens=5,
                                    hidden=HIDDEN, backward="bf16")
    check_compiled_layer(exchange)
    torch.compiler.reset()
    exchange.close()


def check_compiled_layer(exchange, rows=None, room=0.0):
    """As one graph a layer gives the same sums and gradients, within `room`. `rows`: as of the layer."""
    layer = make_layer(exchange, True, torch.bfloat16)
    layer.rows = rows
    found = []
    for call in (layer, torch.compile(layer, fullgraph=True, backend="aot_eager")):
        layer.zero_grad()
        tokens = TOKENS[0].to(exchange.device, torch.bfloat16).requires_grad_()
        sums = call(tokens)
        sums.backward(OF_SUMS[0].to(exchange.device, torch.bfloat16))
        found.append([sums.detach(), tokens.grad, *(value.grad.clone() for value in layer.parameters())])
    assert len(found[0]) == 7 and all(float(one.abs().max()) > 0 for one in found[0])
    for eager, compiled in zip(*found):
        dense.assert_close(compiled, eager.double(), room)


def test_what_is_refused():
    def body(world):
        shape = dict(experts=EXPERTS, top_k=TOP_K, max_tokens=5, hidden=HIDDEN)
        with ferry.torch.Exchange(world, **shape) as exchange:
            with pytest.raises(ValueError, match="inter is 12"):
                ferry.torch.MoELayer(exchange, 12)
            layer = ferry.torch.MoELayer(exchange, INTER)
            with pytest.raises(ValueError, match="backward=\"bf16\""):
                layer(torch.ones(2, HIDDEN))
            with pytest.raises(TypeError, match="state_dict"):
                copy.deepcopy(layer)
            assert layer.state_dict().keys() == {"gate_up", "down", "router.linear.weight"}
        with ferry.torch.Exchange(world, **shape, fused_shared_expert=True) as exchange:
            with pytest.raises(ValueError, match="shared_inter"):
                ferry.torch.MoELayer(exchange, INTER)
        with pytest.raises(TypeError, match="ferry.torch.Exchange"):
            ferry.torch.MoELayer(world, INTER)

    ferry.run_ranks(1, body)


@pytest.mark.parametrize("given, kept, computed", [("bfloat16", "float32", "bfloat16"), ("float32", "bfloat16", None),
                                                   ("float32", "float32", "bfloat16")])
def test_a_shared_expert_computes_as_the_others_do(given, kept, computed):
    """Tokens, parameters and matmuls of different types."""
    types = [None if name is None else getattr(torch, name) for name in (given, kept, computed)]

    def body(world):
        with ferry.torch.Exchange(world, experts=EXPERTS, top_k=TOP_K, max_tokens=5, hidden=HIDDEN, backward="bf16",
                                  expert_alignment=8) as exchange:
            layer = make_layer(exchange, True, types[1])
            layer.compute_dtype = types[2]
            tokens = TOKENS[world.rank].to(types[0]).requires_grad_()
            sums = layer(tokens)
            assert sums.dtype == types[0]
            sums.float().sum().backward()
            assert tokens.grad is not None and layer.shared_down.weight.grad.dtype == types[1]
            dense.assert_close(sums.detach().double(), want_of(TOKENS, True)[0][world.rank], 0.03)

    ferry.run_ranks(RANKS, body)


def test_tokens_of_another_hidden_size_are_refused():
    def body(world):
        with ferry.torch.Exchange(world, experts=EXPERTS, top_k=TOP_K, max_tokens=5, hidden=HIDDEN,
                                  backward="bf16") as exchange:
            with pytest.raises(ValueError, match=r"tokens has shape \[2, 128\]; it must be \[..., 64\]"):
                ferry.torch.MoELayer(exchange, INTER)(torch.ones(2, 2 * HIDDEN))

    ferry.run_ranks(1, body)


def test_autocast_leaves_the_choice_of_experts_alone():
    router, tokens = ferry.torch.TopKRouter(HIDDEN, EXPERTS, TOP_K), TOKENS[0]
    ids, weights = router(tokens)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        again = router(tokens)
    assert torch.equal(again[0], ids) and torch.equal(again[1], weights)


def test_parameters_lie_where_the_exchange_is():
    def body(world):
        with ferry.torch.Exchange(world, experts=EXPERTS, top_k=TOP_K, max_tokens=5, hidden=HIDDEN,
                                  backward="bf16") as exchange, torch.device("meta"):
            layer = ferry.torch.MoELayer(exchange, INTER, shared_inter=INTER)
            assert {parameter.device.type for parameter in layer.parameters()} == {"cpu"}

    ferry.run_ranks(1, body)
