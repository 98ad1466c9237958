"""Whoever looks on at eager calls of ferry.torch sees operators: tracers, modes, transforms, batches of gradients."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import ferry.torch
from ferry.torch import _tensors

IDS, WEIGHTS = torch.tensor([[0, 3], [2, 1]], dtype=torch.int32), torch.tensor([[0.5, 0.25], [1.0, 2.0]])
TOKENS = torch.randn((2, 64), generator=torch.Generator().manual_seed(3))


def run(body):
    """body(call, tokens): call(tokens) are the sums of squared rows of one rank."""
    def on_rank(world):
        with ferry.torch.Exchange(world, experts=4, top_k=2, max_tokens=2, hidden=64, backward="bf16",
                                  result_format="f32") as exchange:
            def call(tokens):
                arrived = ferry.torch.dispatch(exchange, tokens, IDS, WEIGHTS, rows=exchange.most_rows())
                return ferry.torch.combine(exchange, arrived.values * arrived.values, arrived)

            body(call, TOKENS.bfloat16().float().requires_grad_())

    ferry.run_ranks(1, on_rank)


class Seen(TorchDispatchMode):
    """The names of Ferry's operators."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, call, types, args=(), kwargs=None):
        if call.namespace == "ferry":
            self.names.append(call.name())
        return call(*args, **(kwargs or {}))


def test_a_batch_of_gradients():
    def body(call, tokens):
        sums = call(tokens)
        of_sums = torch.stack([torch.ones_like(sums), torch.arange(64).float().expand_as(sums)])
        (found,) = torch.autograd.grad(sums, tokens, of_sums, is_grads_batched=True, retain_graph=True)
        for one, of_sum in zip(found, of_sums):
            assert torch.equal(one, torch.autograd.grad(sums, tokens, of_sum, retain_graph=True)[0])

    run(body)


@pytest.mark.filterwarnings("ignore")  # the tracer warns of all that it keeps
@pytest.mark.parametrize("has_gradients", [True, False])
def test_a_traced_call_is_the_operators(has_gradients):
    def body(call, tokens):
        tokens = tokens.detach().requires_grad_(has_gradients)
        traced = torch.jit.trace(call, (tokens,), check_trace=False)
        assert {"ferry::dispatch", "ferry::combine"} <= {node.kind() for node in traced.graph.nodes()}
        other = tokens.detach() + 1
        assert torch.equal(traced(other), call(other))

    run(body)


@pytest.mark.parametrize("is_told", [True, False])
def test_a_mode_of_this_thread_sees_operators(is_told, monkeypatch):
    """Also where torch's word for all threads is that of one that left its mode."""
    if not is_told:
        monkeypatch.setattr(_tensors, "is_in_torch_dispatch_mode", lambda: False)

    def body(call, tokens):
        want = torch.autograd.grad(call(tokens).sum(), tokens)[0]
        with Seen() as seen:
            (found,) = torch.autograd.grad(call(tokens).sum(), tokens)
        assert seen.names == [f"ferry::{name}" for name in ("dispatch", "combine", "replay", "send_home")]
        assert torch.equal(found, want)

    run(body)


def test_gradients_that_are_negated_when_they_are_read():
    def body(call, tokens):
        found = torch.autograd.grad(call(tokens), tokens, torch._neg_view(torch.ones(2, 64)))[0]
        assert torch.equal(found, torch.autograd.grad(call(tokens), tokens, -torch.ones(2, 64))[0])

    run(body)
