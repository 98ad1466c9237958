"""Padded rows in more memory than all groups have: what lies behind them is padding, too."""

import numpy as np
import pytest

import devices
import ferry
from oracle import make_layer

LAYER = make_layer(2, 4, 2, 256, [3, 5])
MORE = (1, 2, 6)  # 2 groups: what can be taken for a longer stride, and what cannot


@pytest.mark.parametrize("stride", (0, 12))
@pytest.mark.parametrize("name, tiled", [(name, False) for name in ferry.formats.names()] + [("mxfp8", True)])
def test_rows_lie_and_are_decoded_as_in_exact_memory(name, tiled, stride, run):
    def body(world):
        rank = world.rank

        def garbage(name, shape, dtype):
            memory = ferry._arrays.empty(shape, dtype)
            memory.view(np.uint8).fill(0x7f)
            return memory if world.device == "cpu" else devices.on_gpu(memory, world.device)

        with devices.open_exchange(world, experts=4, top_k=2, max_tokens=5, hidden=256, format=name, tiled_scales=tiled,
                                   allocate=garbage) as exchange:
            least = exchange.layout.least_rows("padded", stride)

            def dispatched(rows):
                return exchange.dispatch(LAYER.tokens[rank], LAYER.ids[rank], LAYER.weights[rank], row_order="padded",
                                         row_capacity=rows, expert_stride=stride)

            exact = dispatched(least)
            values, has = exact.values(), exact.has_token
            assert has.sum() == len(LAYER.rows_of(rank)) and np.abs(values[has]).max() > 0
            for more in MORE:
                found = dispatched(least + more)
                assert (found.has_token == np.append(has, np.zeros(more, bool))).all()
                assert [found.rows_of(group) for group in range(2)] == [exact.rows_of(group) for group in range(2)]
                assert (found.values()[:least] == values).all() and (found.values()[least:] == 0).all()

    run(2, body)
