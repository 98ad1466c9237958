"""The operators: torch.library.opcheck, and torch.compile with one graph. The world is one rank: checks call often."""

import dense
import pytest
import torch

import ferry
import ferry.torch

IDS = torch.tensor([[0, 1], [2, -1], [3, 0]])
OPS = torch.ops.ferry


@pytest.fixture(name="open_exchange")
def _open_exchange():
    opened = []

    def open_exchange(**options):
        shape = dict(experts=4, top_k=2, max_tokens=6, hidden=64, backward="bf16",
                     row_orders=["by_expert", "padded", "by_source"])
        opened.append(ferry.torch.Exchange(ferry.make_thread_worlds(1)[0], **{**shape, **options}))
        return opened[-1]

    yield open_exchange
    torch.compiler.reset()  # its guards would keep the exchanges
    for exchange in opened:
        exchange.close()


def leaf(*shape, seed=0, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype).requires_grad_()


@pytest.mark.parametrize("order", ["by_expert", "padded", "by_source"])
@pytest.mark.parametrize("name", ["bf16", "fp8_block128", "mxfp8"])
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # opcheck's own
def test_opcheck(open_exchange, order, name):
    check_operators(open_exchange(format=name), order)


def check_operators(exchange, order, atol=32):
    """Of the four operators what torch.library.opcheck asks, with tensors where the exchange has its own.

    atol: how far two outputs of a dispatch may be apart. Handles differ in one byte, the number of their routing, by as
    much as there are calls in between.
    """
    device, rows, end = exchange.device, exchange.most_rows(order), (exchange.name, order)
    tokens = leaf(3, 64).detach().to(device).requires_grad_()
    weights, ids = torch.rand(3, 2, device=device, requires_grad=True), IDS.to(device)
    for size, codes in [(rows, True), (-1, False)] if order != "padded" else [(rows, True)]:
        torch.library.opcheck(OPS.dispatch.default, (tokens, ids, weights, *end, size, torch.float32, codes), rtol=1e-5,
                              atol=atol)
    values, row_weights, _, row_info, handle, *_ = OPS.dispatch(tokens, ids, weights, *end, rows, torch.float32, False)
    values, row_weights = values.detach(), row_weights.detach()
    given = row_weights.clone().requires_grad_() if order != "by_source" else None
    torch.library.opcheck(OPS.combine.default, (values.clone().requires_grad_(), given, handle, *end, 3, torch.float32))
    torch.library.opcheck(OPS.replay.default, (tokens.detach(), handle, *end, rows, torch.float32))
    torch.library.opcheck(OPS.send_home.default, (values, row_weights, row_info, handle, *end, 3, torch.float32))
    torch.library.opcheck(OPS.send_home.default, (values, None, row_info, handle, *end, 3, torch.bfloat16))


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
def test_opcheck_of_short_handles(open_exchange):
    exchange = open_exchange(short_handles=True)
    tokens, weights = leaf(3, 64), torch.rand(3, 2, requires_grad=True)
    torch.library.opcheck(OPS.dispatch.default, (tokens, IDS, weights, exchange.name, "by_expert", -1, torch.float32,
                                                 False), rtol=1e-5, atol=32)


def outputs_and_gradients(function, leaves):
    for one in leaves:
        one.grad = None
    found = function(*leaves)
    found.float().square().sum().backward()
    return [found.detach(), *(one.grad.clone() for one in leaves)]


def two_layers(exchange):
    def layer(tokens, weights, matrices):
        arrived = ferry.torch.dispatch(exchange, tokens, IDS, weights)
        results = torch.nn.functional.grouped_mm(arrived.values, matrices, offs=arrived.row_offsets[1:])
        return ferry.torch.combine(exchange, torch.tanh(results), arrived)

    return lambda tokens, weights, matrices: layer(layer(tokens, weights, matrices), weights, matrices)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_compiled_model_is_one_graph_with_the_same_calls(open_exchange, backend):
    exchange = open_exchange()
    bf16 = torch.bfloat16  # torch 2.11 compiles grouped_mm in no other
    leaves = [leaf(3, 64, dtype=bf16), torch.rand(3, 2, requires_grad=True), leaf(4, 64, 64, seed=1, dtype=bf16)]
    model = two_layers(exchange)
    want = outputs_and_gradients(model, leaves)
    compiled = torch.compile(model, fullgraph=True, backend=backend)
    for _ in range(2):
        before = exchange.stats()
        got = outputs_and_gradients(compiled, leaves)
        after = exchange.stats()
        # Forward two of each; backward two replays and two combines. Nothing is made twice, and nothing left out.
        assert [after[name] - before[name] for name in ("dispatches", "combines")] == [4, 4]
        for one, other in zip(got, want):
            dense.assert_close(one, other.double(), 2**-5)  # inductor rounds to bf16 less often


def test_other_numbers_of_tokens(open_exchange):
    exchange = open_exchange()

    @torch.compile(fullgraph=True, backend="aot_eager", dynamic=True)
    def there_and_back(tokens, ids):
        arrived = ferry.torch.dispatch(exchange, tokens, ids)
        assert arrived.values.shape[0] == exchange.most_rows()
        return ferry.torch.combine(exchange, arrived.values * 2, arrived)

    for n in (2, 5, 3):
        tokens = torch.ones(n, 64)
        ids = torch.arange(2 * n).reshape(n, 2) % 4
        assert (there_and_back(tokens, ids) == 4 * tokens).all()


def test_calls_whose_results_nobody_uses_are_not_dropped(open_exchange):
    exchange = open_exchange()

    def forgetful(tokens):
        ferry.torch.dispatch(exchange, tokens, IDS)
        return tokens + 1

    for backend in ("aot_eager", "inductor"):
        before = exchange.stats()["dispatches"]
        torch.compile(forgetful, fullgraph=True, backend=backend)(torch.ones(3, 64))
        assert exchange.stats()["dispatches"] == before + 1


def test_exact_sizes_break_no_shape(open_exchange):
    """rows=-1 in a traced program is a size that is known when it runs."""
    exchange = open_exchange()
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        @torch.compile(fullgraph=True, backend="aot_eager")
        def exact(tokens):
            values, *_ = OPS.dispatch(tokens, IDS, None, exchange.name, "by_expert", -1, torch.float32, False)
            return values * 2

        assert exact(torch.ones(3, 64)).shape == (5, 64)
