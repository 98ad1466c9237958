"""What ferry.torch refuses, by the name of the argument, and what it copies in place of that."""

import pickle
import warnings

import numpy as np
import pytest
import torch
from test_torch_exchange import inputs_of, open_exchange

import ferry
import ferry.torch


def refuses(call, error, *words):
    with pytest.raises(error) as raised:
        call()
    assert all(word in str(raised.value) for word in words), raised.value


def test_what_is_refused():
    tokens, ids, weights = torch.ones(2, 256), torch.tensor([[0, 7], [2, 5]]), torch.ones(2, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it is a prototype
        nested = torch.nested.nested_tensor([tokens])

    def body(world):
        with open_exchange(world) as exchange:
            refuses(lambda: exchange.dispatch(tokens.double(), ids), ValueError, "tokens", "f64")
            refuses(lambda: exchange.dispatch(tokens.numpy(), ids), TypeError, "tokens", "ndarray")
            refuses(lambda: exchange.dispatch(tokens[:, ::2], ids), ValueError, "tokens")
            refuses(lambda: exchange.dispatch(tokens.t().contiguous().t(), ids), ValueError, "tokens")
            refuses(lambda: exchange.dispatch(tokens[:, :32], ids), ValueError, "tokens", "[2, 32]")
            refuses(lambda: exchange.dispatch(tokens, ids.float()), ValueError, "topk_ids", "f32")
            refuses(lambda: exchange.dispatch(tokens, ids.t()), ValueError, "topk_ids")
            refuses(lambda: exchange.dispatch(tokens, ids + 6), ValueError, "topk_ids", "13")
            refuses(lambda: exchange.dispatch(tokens.to("meta"), ids), ValueError, "tokens", "meta", "cpu")
            refuses(lambda: exchange.dispatch(tokens.to_sparse(), ids), TypeError, "tokens", "sparse")
            refuses(lambda: exchange.dispatch(tokens, ids, weights.requires_grad_()), ValueError, "topk_weights",
                    "ferry.torch.dispatch")
            refuses(lambda: exchange.dispatch(None, ids), TypeError, "tokens")
            refuses(lambda: exchange.dispatch(nested, ids), TypeError, "tokens", "nested")
            refuses(lambda: exchange.dispatch(tokens, nested), TypeError, "topk_ids", "nested")
            for dtype in (torch.float32, torch.bfloat16):  # negated by a mark, which DLPack does not carry
                refuses(lambda: exchange.dispatch(torch._neg_view(tokens.to(dtype)), ids), ValueError,
                        "tokens.resolve_neg()")
            refuses(lambda: exchange.dispatch(tokens, ids, torch._neg_view(weights.detach())), ValueError,
                    "topk_weights.resolve_neg()")
            with torch.no_grad():
                exchange.combine(exchange.dispatch(tokens, ids, weights).values())
            arrivals = exchange.dispatch(tokens, ids)
            refuses(lambda: exchange.combine(arrivals.values().double()), ValueError, "float64", "bfloat16")
            refuses(lambda: exchange.combine(arrivals.values(), out=torch.ones(2, 256, requires_grad=True)), ValueError,
                    "out", "requires grad")
            refuses(lambda: exchange.combine(torch._neg_view(arrivals.values())), ValueError, "rows.resolve_neg()")
            refuses(lambda: exchange.combine(arrivals.values(), out=torch._neg_view(torch.ones(2, 256))), ValueError,
                    "resolve_neg()")
            for bias in (tokens, torch.ones(2, 256, dtype=torch.float64), weights):  # the last one requires grad
                with torch.no_grad(), pytest.raises(TypeError, match="^bias is <class 'torch.Tensor'>; it must be a list of "
                                                    "arrays: give a list of one or two$"):
                    exchange.combine(arrivals.values(), bias=bias)
            exchange.combine(arrivals.values(), bias=iter([tokens]))
            arrivals = exchange.dispatch(tokens, ids)
            exchange.combine(arrivals.values())
            refuses(lambda: pickle.dumps(exchange), TypeError, "pickled", "state_dict")
        assert exchange.closed
        refuses(lambda: exchange.dispatch(tokens, ids), ValueError, "closed")
        refuses(lambda: open_exchange(world, allocate=np.empty), TypeError, "allocate")
        refuses(lambda: open_exchange(world, colour=1), TypeError, "colour")
        refuses(lambda: open_exchange(None), TypeError, "from_group")
        refuses(lambda: open_exchange(world, backward="bf16", reduction="exact"), ValueError, "by_rank")
        refuses(lambda: open_exchange(world, backward="bf16", skip_a2a=True), ValueError, "skip_a2a")

    ferry.run_ranks(1, body)


def test_a_wrong_type_is_told_by_the_name_of_its_argument():
    def body(world):
        exchange = open_exchange(world, backward="bf16")
        tokens, ids, _ = inputs_of(world.rank)
        arrived = ferry.torch.dispatch(exchange, tokens, ids)
        for argument, call in [
                ("experts", lambda: ferry.torch.Exchange(world, experts=True, top_k=2, max_tokens=6, hidden=256)),
                ("outputs", lambda: exchange.dispatch(tokens, ids, outputs=3)),
                ("row_order", lambda: exchange.most_rows("sideways")),
                ("ranks", lambda: exchange.add_to_mask(3)),
                ("tokens", lambda: ferry.torch.dispatch(exchange, None, ids)),
                ("topk_ids", lambda: ferry.torch.dispatch(exchange, tokens, ids.tolist())),
                ("topk_weights", lambda: ferry.torch.dispatch(exchange, tokens, ids, 1.0)),
                ("exchange", lambda: ferry.torch.dispatch(None, tokens, ids)),
                ("exchange", lambda: ferry.torch.combine(exchange._base, arrived.values, arrived)),
                ("the dtype of tokens", lambda: ferry.torch.dispatch(exchange, tokens.double(), ids)),
                ("codes", lambda: ferry.torch.dispatch(exchange, tokens, ids, codes=1)),
                ("rows", lambda: ferry.torch.combine(exchange, 3, arrived)),
                ("apply_weights", lambda: ferry.torch.combine(exchange, arrived.values, arrived, apply_weights=None)),
                ("tokens", lambda: ferry.torch.MoELayer(exchange, 8)(tokens.numpy())),
                ("router", lambda: ferry.torch.MoELayer(exchange, 8, router=3)),
                ("arrived", lambda: ferry.torch.combine(exchange, arrived.values, None)),
                ("dtype", lambda: ferry.torch.combine(exchange, arrived.values, arrived, dtype="a")),
                ("inter", lambda: ferry.torch.MoELayer(exchange, "a")),
                ("shared_inter", lambda: ferry.torch.MoELayer(exchange, 8, shared_inter=-1))]:
            with pytest.raises((TypeError, ferry.Error), match=f"^{argument} is .*; it must be"):
                call()
        exchange.close()
        for call in (lambda: exchange.dispatch(tokens, ids), lambda: ferry.torch.dispatch(exchange, tokens, ids)):
            with pytest.raises(ferry.Closed, match="is closed"):
                call()

    ferry.run_ranks(1, body)


def test_plain_exchanges_say_the_layout_and_device_of_a_tensor_that_is_not_taken():
    tokens, ids = torch.ones(2, 256), torch.tensor([[0, 1], [2, 3]])

    def body(world):
        with ferry.Exchange(world, experts=4, top_k=2, max_tokens=2, hidden=256) as exchange:
            refuses(lambda: exchange.dispatch(tokens.to_sparse(), ids), TypeError, "tokens is <class 'torch.Tensor'> of dtype "
                    "torch.float32, layout torch.sparse_coo, device cpu; it must be", "dense")
            refuses(lambda: exchange.dispatch(tokens.to("meta"), ids), TypeError, "layout torch.strided, device meta")

    ferry.run_ranks(1, body)


def test_the_functions_make_what_they_are_given_contiguous():
    """As docs/torch.md says: a copy, where the calls of an Exchange refuse."""
    tokens, ids = torch.arange(512.0).reshape(2, 256), torch.tensor([[0, 7], [2, 5]])

    def body(world):
        with open_exchange(world) as exchange:
            want = ferry.torch.dispatch(exchange, tokens, ids)
            got = ferry.torch.dispatch(exchange, tokens.t().contiguous().t(), ids.t().contiguous().t())
            assert torch.equal(got.values, want.values)
            turned = want.values.t().contiguous().t()
            assert torch.equal(ferry.torch.combine(exchange, turned, got), ferry.torch.combine(exchange, want.values, got))

    ferry.run_ranks(1, body)
