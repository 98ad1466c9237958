"""Padded rows in more memory than all groups have, as tensors: what lies behind them is padding, too."""

import pytest
import torch

import ferry
import ferry.torch
from oracle import make_layer

LAYER = make_layer(2, 4, 2, 256, [3, 5])
MORE = (1, 2, 6)  # 2 groups: what can be taken for a longer stride, and what cannot
FORMATS = ("bf16", "fp8_block128", "fp8_block128_ue8m0", "mxfp8", "nvfp4")


def run_on_garbage(monkeypatch, name, body):
    """Runs body(exchange, tokens, ids, weights), whose outputs have something in them before a call fills them."""
    usual = ferry.torch._arrivals.TensorExchange._empty

    def garbage(exchange, specs, *more):
        made = usual(exchange, specs, *more)
        for each in made.keys() - {"handle"}:
            made[each].view(torch.uint8).fill_(0x7f)
        return made

    monkeypatch.setattr(ferry.torch._arrivals.TensorExchange, "_empty", garbage)

    def on_rank(world):
        with ferry.torch.Exchange(world, experts=4, top_k=2, max_tokens=5, hidden=256, format=name) as exchange:
            body(exchange, *(torch.from_numpy(array[world.rank]) for array in (LAYER.tokens, LAYER.ids, LAYER.weights)))

    ferry.run_ranks(2, on_rank)


@pytest.mark.parametrize("name", FORMATS)
def test_arrivals(name, monkeypatch):
    def body(exchange, *given):
        least = exchange.most_rows("padded")
        exact = exchange.dispatch(*given, row_order="padded", row_capacity=least)
        values, has = exact.values(), exact.has_token
        assert int(has.sum()) == len(LAYER.rows_of(exchange.rank)) and float(values[has].abs().max()) > 0
        for more in MORE:
            found = exchange.dispatch(*given, row_order="padded", row_capacity=least + more)
            assert torch.equal(found.has_token, torch.cat((has, has.new_zeros(more))))
            assert torch.equal(found.values(), torch.cat((values, values.new_zeros(more, 256))))

    run_on_garbage(monkeypatch, name, body)


@pytest.mark.parametrize("codes", (False, True))
@pytest.mark.parametrize("name", FORMATS)
def test_rows_of_the_function(name, codes, monkeypatch):
    def body(exchange, *given):
        least = exchange.most_rows("padded")

        def dispatched(rows):
            return ferry.torch.dispatch(exchange, *given, rows=rows, row_order="padded", codes=codes)

        exact = dispatched(least)
        for more in MORE:
            found = dispatched(least + more)
            for field in ("values", "row_weights"):
                want = getattr(exact, field)
                assert torch.equal(getattr(found, field), torch.cat((want, want.new_zeros(more, *want.shape[1:]))))
            assert (found.row_info[least:] == -1).all()
            for codes_there in (found.payload, found.scales):
                if codes_there.shape[0] == least + more:
                    assert (codes_there[least:].view(torch.uint8) == 0).all()

    run_on_garbage(monkeypatch, name, body)
