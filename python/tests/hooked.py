"""A layer, and hooks for it, that the tests of hooks share."""

import numpy as np
import pytest

import ferry
from oracle import make_layer

LAYER = make_layer(3, 8, 3, 1088, [5, 0, 7])  # a row is more than one piece of columns
WORKERS = pytest.mark.parametrize("workers", [1, 3])


def open_exchange(world, **options):
    return ferry.Exchange(world, **{**dict(experts=8, top_k=3, max_tokens=7, hidden=1088, deadline=20), **options})


def sums_of(rank):
    return LAYER.sums(rank, lambda expert: expert + 1)


def close(got, rank):
    want = sums_of(rank)
    return got.shape == want.shape and np.abs(got - want).max(initial=0) <= 0.02 * np.abs(want).max(initial=1)


def weight_of(rank, calls=None):
    """A router_weight that gives LAYER's weights, and notes its calls."""
    def router_weight(token, k):
        if calls is not None:
            calls.append((token, k))
        return float(LAYER.weights[rank][token, k])

    return router_weight


class Sums:
    """An epilogue that keeps what it is given."""

    def __init__(self, rank):
        self.shape, self.pieces = sums_of(rank).shape, []

    def __call__(self, token, column, values):
        assert values.dtype == np.float32 and values.ndim == 1 and values.flags.writeable
        self.pieces.append((token, column, values))

    def whole(self):
        """The sums, of which each column has come once."""
        sums, times = np.full(self.shape, np.nan, np.float32), np.zeros(self.shape, int)
        for token, column, values in self.pieces:
            sums[token, column:column + len(values)] = values
            times[token, column:column + len(values)] += 1
        assert (times == 1).all()
        return sums


def dispatched(exchange, rank, **more):
    return exchange.dispatch(LAYER.tokens[rank], LAYER.ids[rank], **more)
