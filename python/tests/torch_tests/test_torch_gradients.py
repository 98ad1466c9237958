"""Gradients of ferry.torch.dispatch and combine on CPU ranks, beside the dense layer in float64."""

import dense
import pytest
import torch
from torch.autograd import forward_ad

import ferry
import ferry.torch
from ferry.torch import _gradients, _ops
from oracle import make_layer

LAYER = make_layer(3, 7, 2, 64, [4, 0, 6])
EXACT = 2e-6  # what float32 costs; nothing is rounded to less, since tokens and gradients are whole numbers below 256


def whole(shape, seed):
    return torch.randint(-3, 4, shape, generator=torch.Generator().manual_seed(seed)).float()


TOKENS = [(torch.from_numpy(LAYER.tokens[rank]) / 8, torch.from_numpy(LAYER.ids[rank]),
           torch.from_numpy(LAYER.weights[rank])) for rank in range(3)]
MATRICES = torch.randn((7, 64, 64), generator=torch.Generator().manual_seed(1)) / 8
OF_SUMS = [whole((len(LAYER.tokens[rank]), 64), rank) for rank in range(3)]


def open_exchange(world, **options):
    shape = dict(experts=7, top_k=2, max_tokens=6, hidden=64, backward="bf16", result_format="f32")
    return ferry.torch.Exchange(world, **{**shape, **options})


def results_of(exchange, arrived, matrices):
    """Rows through this rank's experts. by_source: the weighted sum of those that the row's token names."""
    if arrived.row_order == "by_source":
        found = torch.zeros_like(arrived.values)
        for k in range(exchange.top_k):
            local = arrived.row_info[:, k]
            every = torch.einsum("rh,rhi->ri", arrived.values, matrices[exchange.first_expert + local.clamp(min=0)])
            found = found + torch.where((local >= 0)[:, None], torch.tanh(every) * arrived.row_weights[:, k, None], 0)
        return found
    found = []
    starts = arrived.row_offsets.tolist()
    for group in range(exchange.groups):
        rows = arrived.values[starts[group]:starts[group + 1]]
        found.append(dense.expert(matrices[exchange.first_expert + group], rows))
    return torch.cat([*found, arrived.values[starts[-1]:] * 0])


@pytest.fixture(params=[True, False], name="returned")
def _returned(request, monkeypatch):
    """Worlds that can return weights, and worlds that cannot."""
    if not request.param:
        monkeypatch.setattr(_gradients, "returns_weights", lambda world: False)
    return request.param


def run(body_options, *, order="by_expert", given=TOKENS, rows=None, room=EXACT, dtype=None, want_given=None,
        by_operators=False):
    def body(world):
        tokens, ids, weights = (tensor.clone() for tensor in given[world.rank])
        tokens.requires_grad_()
        weights.requires_grad_()
        matrices = MATRICES.clone().requires_grad_()
        with open_exchange(world, **body_options) as exchange:
            size = exchange.most_rows(order) if rows == "most" else rows
            arrived = ferry.torch.dispatch(exchange, tokens, ids, weights, row_order=order, rows=size, dtype=dtype)
            sums = ferry.torch.combine(exchange, results_of(exchange, arrived, matrices), arrived)
            sums.backward(OF_SUMS[world.rank].to(sums.dtype))
            assert ("ferry_combine" in sums.grad_fn.name()) == by_operators
            assert tokens.grad.dtype == tokens.dtype and weights.grad.dtype == weights.dtype
        return sums, tokens.grad, weights.grad, matrices.grad

    found = ferry.run_ranks(3, body)
    sums, of_tokens, of_weights, of_matrices = dense.gradients(want_given or given, MATRICES, OF_SUMS)
    for rank in range(3):
        dense.assert_close(found[rank][0], sums[rank], room)
        dense.assert_close(found[rank][1], of_tokens[rank], room)
        dense.assert_close(found[rank][2], of_weights[rank], room)
    dense.assert_close(sum(one[3] for one in found), of_matrices, room)


@pytest.mark.parametrize("rows", [None, "most"])
@pytest.mark.parametrize("order", ["by_expert", "padded", "by_source"])
@pytest.mark.usefixtures("returned")
def test_gradients_are_those_of_the_dense_layer(order, rows):
    run(dict(row_orders=[order], expert_alignment=4 if rows else 1), order=order, rows=rows)


@pytest.mark.parametrize("order", ["by_expert", "padded", "by_source"])
@pytest.mark.usefixtures("returned")
def test_gradients_of_the_operators_are_the_same(order, monkeypatch):
    """Eager calls are recorded without them."""
    monkeypatch.setattr(_ops, "is_eager", lambda *_: False)
    run(dict(row_orders=[order]), order=order, rows="most", by_operators=True)


@pytest.mark.parametrize("order", ["by_expert", "by_source"])
@pytest.mark.usefixtures("returned")
def test_gradients_go_by_short_handles(order):
    run(dict(row_orders=[order], short_handles=True, format="fp8_block128_ue8m0"), order=order, want_given=[
        (torch.from_numpy(ferry.formats.decode(name, *ferry.formats.encode(name, tokens), 64)), ids, weights)
        for name in ["fp8_block128_ue8m0"] for tokens, ids, weights in TOKENS])
    with open_exchange(ferry.make_thread_worlds(1)[0], short_handles=True) as exchange:
        tokens, ids, weights = TOKENS[0]
        arrived = ferry.torch.dispatch(exchange, tokens, ids, weights)
        assert arrived.handle.numel() < exchange.handle_bytes
        assert ferry.torch.dispatch(exchange, tokens, ids, weights, rows=40).handle.numel() == exchange.handle_bytes


def test_results_and_gradients_in_bf16():
    run(dict(result_format="bf16"), room=2**-7)


def test_narrow_tokens_and_weights():
    narrow = [(tokens.bfloat16(), ids, weights.bfloat16()) for tokens, ids, weights in TOKENS]
    run({}, given=narrow, dtype=torch.float32, room=2**-7)


@pytest.mark.parametrize("name", ["fp8_block128_ue8m0", "mxfp8", "mxfp6_e3m2"])
def test_tokens_in_a_narrow_format_and_gradients_in_bf16(name):
    """The gradient is that at the decoded tokens: encoding counts as the identity."""
    decoded = [(torch.from_numpy(ferry.formats.decode(name, *ferry.formats.encode(name, tokens), 64)), ids, weights)
               for tokens, ids, weights in TOKENS]
    run(dict(format=name), want_given=decoded)


@pytest.mark.usefixtures("returned")
def test_a_fused_shared_expert():
    shared = MATRICES[3] / 2

    def body(world):
        tokens, ids, weights = (tensor.clone() for tensor in TOKENS[world.rank])
        tokens.requires_grad_()
        weights.requires_grad_()
        with open_exchange(world, fused_shared_expert=True) as exchange:
            arrived = ferry.torch.dispatch(exchange, tokens, ids, weights)
            start = int(arrived.row_offsets[1])
            own = MATRICES[exchange.first_expert:]
            ends = arrived.row_offsets[1:].tolist()
            rows = [dense.expert(own[group], arrived.values[ends[group]:ends[group + 1]])
                    for group in range(exchange.groups - 1)]
            results = torch.cat([dense.expert(shared, arrived.values[:start]), *rows])
            sums = ferry.torch.combine(exchange, results, arrived)
            sums.backward(OF_SUMS[world.rank])
        return sums, tokens.grad, weights.grad

    found = ferry.run_ranks(3, body)
    want = dense.gradients(TOKENS, MATRICES, OF_SUMS, shared=shared.double())
    for rank in range(3):
        for got, all_ranks in zip(found[rank], want):
            dense.assert_close(got, all_ranks[rank], EXACT)


def test_weights_that_the_caller_multiplies_and_none():
    def body(world):
        tokens, ids, weights = (tensor.clone() for tensor in TOKENS[world.rank])
        weights.requires_grad_()
        with open_exchange(world) as exchange:
            arrived = ferry.torch.dispatch(exchange, tokens, ids, weights)
            one = ferry.torch.combine(exchange, arrived.values.square(), arrived)
            one.backward(OF_SUMS[world.rank])
            want, weights.grad = weights.grad, None
            arrived = ferry.torch.dispatch(exchange, tokens, ids, weights)
            rows = arrived.values.square() * arrived.row_weights[:, None]
            other = ferry.torch.combine(exchange, rows, arrived, apply_weights=False)
            other.backward(OF_SUMS[world.rank])
            dense.assert_close(other, one.double(), EXACT)
            dense.assert_close(weights.grad, want.double(), EXACT)
            plain = ferry.torch.dispatch(exchange, tokens, ids)
            ferry.torch.combine(exchange, plain.values, plain)
            assert not plain.row_weights.requires_grad and (plain.row_weights == 1).all()

    ferry.run_ranks(3, body)


def test_two_dispatches_whose_backward_comes_in_reverse():
    """Handles of several dispatches are alive, as in a model of many layers."""
    def body(world):
        tokens, ids, weights = TOKENS[world.rank]
        tokens = tokens.clone().requires_grad_()
        with open_exchange(world) as exchange:
            arrived = [ferry.torch.dispatch(exchange, tokens * factor, ids, weights) for factor in (1, 2)]
            first, second = (ferry.torch.combine(exchange, one.values, one) for one in arrived)
            (first + second).backward(OF_SUMS[world.rank])
            present = torch.where(ids >= 0, weights, 0).sum(1, keepdim=True)
            dense.assert_close(tokens.grad, (3 * present * OF_SUMS[world.rank]).double(), EXACT)
            assert exchange.stats()["dispatches"] == 4 and exchange.stats()["combines"] == 4

    ferry.run_ranks(3, body)


def test_what_is_refused():
    def body(world):
        tokens, ids, weights = torch.ones(2, 64), torch.tensor([[0, 6], [2, 5]]), torch.ones(2, 2)
        with open_exchange(world, backward=None) as exchange:
            with pytest.raises(ValueError, match="tokens requires grad.*backward=\"bf16\""):
                ferry.torch.dispatch(exchange, tokens.clone().requires_grad_(), ids)
            arrived = ferry.torch.dispatch(exchange, tokens, ids, weights)
            with pytest.raises(ValueError, match="rows requires grad"):
                ferry.torch.combine(exchange, arrived.values.requires_grad_(), arrived)
            for name, given in [("tokens", (tokens.to_sparse(), ids)), ("topk_weights", (tokens, ids, weights.to_sparse()))]:
                with pytest.raises(TypeError, match=f"{name} has layout torch.sparse_coo"):
                    ferry.torch.dispatch(exchange, *given)
            with pytest.raises(TypeError, match="tokens is <class 'numpy.ndarray'>; it must be a torch.Tensor on cpu"):
                ferry.torch.dispatch(exchange, tokens.numpy(), ids)
            with pytest.raises(ValueError, match="row_order is 'in_place'"):
                ferry.torch.dispatch(exchange, tokens, ids, row_order="in_place")
            with pytest.raises(ValueError, match="the dtype of tokens is torch.float64"):
                ferry.torch.dispatch(exchange, tokens.double(), ids)
            with pytest.raises(ValueError, match="tokens is on meta"):
                ferry.torch.dispatch(exchange, tokens.to("meta"), ids)
            with pytest.raises(ValueError, match="rows is -1"):
                ferry.torch.dispatch(exchange, tokens, ids, rows=-1)
            with forward_ad.dual_level(), pytest.raises(ferry.Unsupported, match="tokens has a forward-mode tangent"):
                ferry.torch.dispatch(exchange, forward_ad.make_dual(tokens, tokens), ids)
            with pytest.raises(ValueError, match="rows|row_capacity|4"):
                ferry.torch.dispatch(exchange, tokens, ids, rows=1)
        with open_exchange(world) as exchange:
            leaf = tokens.clone().requires_grad_()
            arrived = ferry.torch.dispatch(exchange, leaf, ids, weights)
            with pytest.raises(ValueError, match=r"rows is \[3, 64\]; .* \[4, 64\]"):
                ferry.torch.combine(exchange, arrived.values[:3], arrived)
            sums = ferry.torch.combine(exchange, arrived.values.square(), arrived)
            with pytest.raises(ferry.Unsupported, match="second derivative"):
                torch.autograd.grad(sums.sum(), leaf, create_graph=True)[0].sum().backward()
            arrived = ferry.torch.dispatch(exchange, leaf, ids, weights)
        with pytest.raises(ValueError, match="closed"):
            ferry.torch.combine(exchange, arrived.values, arrived)
        with pytest.raises(ValueError, match="exchange x is gone"):
            torch.ops.ferry.combine(arrived.values, None, arrived.handle, "x", "by_expert", 2, torch.float32)

    ferry.run_ranks(1, body)


def test_codes_for_a_matmul_that_reads_them():
    def body(world):
        tokens, ids, weights = TOKENS[world.rank]
        with open_exchange(world, format="fp8_block128_ue8m0", backward=None) as exchange:
            want = exchange.dispatch(tokens, ids, weights)
            arrived = ferry.torch.dispatch(exchange, tokens, ids, weights, codes=True)
            assert arrived.payload.dtype == torch.float8_e4m3fn and arrived.scales.dtype == torch.float8_e8m0fnu
            assert (arrived.payload.float() == want.payload.float()).all()
            assert (arrived.scales.float() == want.scales.float()).all()
            assert (arrived.values == want.values()).all()
        with open_exchange(world, backward=None) as exchange:
            arrived = ferry.torch.dispatch(exchange, tokens, ids, weights, codes=True)
            assert arrived.payload.dtype == torch.bfloat16 and (arrived.payload.float() == arrived.values).all()

    ferry.run_ranks(3, body)


@pytest.mark.parametrize("name", ["bf16", "fp8_block128", "mxfp8"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_codes_are_those_of_the_format_where_no_row_comes(name, dtype):
    """And they have no gradient."""
    ids = torch.zeros((2, 1), dtype=torch.int64)  # an expert of rank 0

    def body(world):
        with open_exchange(world, top_k=1, format=name) as exchange:
            tokens = torch.ones(2, 64, dtype=dtype, requires_grad=True)
            found = ferry.torch.dispatch(exchange, tokens, ids, codes=True)
            assert found.values.requires_grad and not found.payload.requires_grad and not found.scales.requires_grad
            assert found.values.shape[1] == 64 and (len(found.values) > 0) == (world.rank == 0)
            ferry.torch.combine(exchange, found.values, found)
            of_values = name == "bf16" and dtype == torch.bfloat16  # then payload says nothing more
            return None if of_values else (found.payload.dtype, found.payload.shape[1:]), found.scales.dtype

    first, *others = ferry.run_ranks(3, body)
    assert all(other == first for other in others)


@pytest.mark.parametrize("format", ["bf16", "fp8_block128"])
def test_ranks_that_differ_in_backward_are_refused(format):
    """Where gradients have an exchange of their own, the rank that makes one would wait for the others in vain."""
    def body(world):
        for others in (None, "mxfp8"):
            mine, theirs, rank = ("bf16", others, 0) if world.rank == 2 else (others, "bf16", 2)
            told = f"rank {world.rank}: .* backward is {mine} on rank {world.rank} and {theirs} on rank {rank}"
            with pytest.raises(ferry.InvalidArgument, match=told):
                open_exchange(world, format=format, backward=mine, set_up_deadline=5.0)
        make = ferry.Exchange if world.rank == 0 else ferry.torch.Exchange
        with pytest.raises(ferry.InvalidArgument, match="make the same calls in the same order"):
            make(world, experts=7, top_k=2, max_tokens=6, hidden=64, set_up_deadline=5.0)
        with pytest.raises(TypeError, match="backward is 3; it must be the name of a format"):
            open_exchange(world, backward=3)
        with pytest.raises(ferry.InvalidArgument, match="^backward: 'bf61' is not a format; known are bf16,"):
            open_exchange(world, backward="bf61")

    ferry.run_ranks(3, body)
