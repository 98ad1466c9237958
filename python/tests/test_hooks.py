"""router_weight and epilogue as functions of Python, beside the oracle."""

import gc
import threading
import time

import numpy as np
import pytest

import ferry
from hooked import LAYER, WORKERS, Sums, close, dispatched, open_exchange, sums_of, weight_of
from oracle import make_layer


@WORKERS
@pytest.mark.parametrize("split", [False, True])
def test_weights_of_a_dispatch_and_an_epilogue(workers, split):
    def body(world):
        rank = world.rank
        calls, epilogue = [], Sums(rank)
        with open_exchange(world, workers=workers) as exchange:
            plain = dispatched(exchange, rank, topk_weights=LAYER.weights[rank])
            sums = exchange.combine(LAYER.results_of(rank, plain))
            weight = weight_of(rank, calls)
            if split:
                exchange.dispatch_async(LAYER.tokens[rank], LAYER.ids[rank], router_weight=weight)
                rows = LAYER.results_of(rank, exchange.dispatch_wait())
                exchange.combine_async(rows)
                assert exchange.combine_wait(epilogue=epilogue) is None
            else:
                rows = LAYER.results_of(rank, dispatched(exchange, rank, router_weight=weight))
                assert exchange.combine(rows, epilogue=epilogue) is None
            assert sorted(calls) == [tuple(entry) for entry in np.argwhere(LAYER.ids[rank] >= 0)]
            assert (epilogue.whole() == sums).all() and close(sums, rank)

    ferry.run_ranks(3, body)


@WORKERS
@pytest.mark.parametrize("split", [False, True])
def test_weights_of_an_exact_combine_and_an_epilogue(workers, split):
    def body(world):
        rank = world.rank
        epilogue = Sums(rank)
        with open_exchange(world, reduction="exact", result_format="f32", workers=workers) as exchange:
            rows = LAYER.results_of(rank, dispatched(exchange, rank))
            if split:
                exchange.combine_async(rows, router_weight=weight_of(rank))  # nobody else keeps it
                gc.collect()
                exchange.combine_wait(epilogue=epilogue)
            else:
                exchange.combine(rows, router_weight=weight_of(rank), epilogue=epilogue)
            assert np.allclose(epilogue.whole(), sums_of(rank), rtol=1e-6, atol=1e-3)
            dispatched(exchange, rank)
            sums = exchange.combine(rows, router_weight=lambda token, k: LAYER.weights[rank][token, k])  # numpy's number
            assert (sums == epilogue.whole()).all()

    ferry.run_ranks(3, body)


@WORKERS
def test_late_weights_and_a_bias(workers):
    def body(world):
        rank = world.rank
        with open_exchange(world, late_weights=True, workers=workers) as exchange:
            arrivals = dispatched(exchange, rank, leave_handle=True)
            rows = LAYER.results_of(rank, arrivals)
            for more in ({}, {"handle": arrivals.handle}):
                assert close(exchange.combine(rows, router_weight=weight_of(rank), **more), rank)
            epilogue = Sums(rank)
            exchange.combine(rows, router_weight=weight_of(rank), handle=arrivals.handle, bias=[LAYER.tokens[rank]],
                             epilogue=epilogue)
            assert close(epilogue.whole() - LAYER.tokens[rank], rank)

    ferry.run_ranks(3, body)


def test_many_ranks_call_hooks_at_once():
    layer = make_layer(6, 12, 4, 64, [8] * 6)

    def body(world):
        rank = world.rank
        shape = dict(experts=12, top_k=4, max_tokens=8, hidden=64, reduction="exact", deadline=60, workers=3)
        with ferry.Exchange(world, **shape) as exchange:
            for _ in range(15):
                arrivals = exchange.dispatch(layer.tokens[rank], layer.ids[rank])
                sums = np.zeros((8, 64), np.float32)

                def epilogue(token, column, values):
                    time.sleep(1e-5)  # another thread gets the GIL
                    sums[token, column:column + len(values)] += values

                exchange.combine(layer.results_of(rank, arrivals), epilogue=epilogue,
                                 router_weight=lambda token, k: layer.weights[rank][token, k])
                want = layer.sums(rank, lambda expert: expert + 1)
                assert np.abs(sums - want).max() <= 0.02 * np.abs(want).max()

    ferry.run_ranks(6, body)


@WORKERS
def test_hooks_of_a_call_of_the_main_thread(workers):
    worlds = ferry.make_thread_worlds(1)
    layer = make_layer(1, 4, 2, 64, [6])
    threads = set()
    with ferry.Exchange(worlds[0], experts=4, top_k=2, max_tokens=6, hidden=64, workers=workers) as exchange:
        def router_weight(token, k):
            threads.add(threading.get_ident())
            return layer.weights[0][token, k]

        arrivals = exchange.dispatch(layer.tokens[0], layer.ids[0], router_weight=router_weight)
        sums = exchange.combine(layer.results_of(0, arrivals))
        want = layer.sums(0, lambda expert: expert + 1)
        assert np.abs(sums - want).max() <= 0.02 * np.abs(want).max()
        error = KeyError("mine")

        def epilogue(token, column, values):
            raise error

        exchange.dispatch(layer.tokens[0], layer.ids[0])
        with pytest.raises(KeyError) as raised:
            exchange.combine(layer.results_of(0, arrivals), epilogue=epilogue)
        assert raised.value is error
    assert threading.get_ident() not in threads  # which looks for signals meanwhile


def test_refused():
    def hook(*given):
        return 1.0

    def body(world):
        with open_exchange(world) as exchange:
            given = (LAYER.tokens[0], LAYER.ids[0])
            with pytest.raises(TypeError, match="router_weight is 3; it must be a function"):
                exchange.dispatch(*given, router_weight=3)
            with pytest.raises(ferry.InvalidArgument, match="topk_weights and router_weight are both given"):
                exchange.dispatch(*given, LAYER.weights[0], router_weight=hook)
            with pytest.raises(ferry.InvalidArgument, match="router_weight_context is given, and router_weight is a function"):
                exchange.dispatch(*given, router_weight=hook, router_weight_context=1)
            with pytest.raises(ferry.InvalidArgument, match="router_weight_context is given, and no router_weight"):
                exchange.dispatch(*given, router_weight_context=1)
            rows = LAYER.results_of(0, exchange.dispatch(*given))
            with pytest.raises(ferry.InvalidArgument, match="late_weights"):
                exchange.combine(rows, router_weight=hook)
            with pytest.raises(TypeError, match="epilogue is 'no'; it must be a function"):
                exchange.combine(rows, epilogue="no")
            for more in ({"unreduced": True}, {"dtype": "f32"}):
                with pytest.raises(ferry.InvalidArgument, match="unreduced or dtype is given; an epilogue"):
                    exchange.combine(rows, epilogue=hook, **more)
            kept = np.full(LAYER.tokens[0].shape, 7, np.float32)
            assert exchange.combine(rows, epilogue=hook, out=kept) is None and (kept == 7).all()

    ferry.run_ranks(1, body)
    can = ferry.make_thread_worlds(1)[0].capabilities()
    assert can["function_hooks"] and not can["compiled_hooks"]


def test_a_hook_is_no_place_for_calls_of_its_exchange():
    def body(world):
        with open_exchange(world) as exchange:
            def router_weight(token, k):
                assert exchange.stats()["combines"] == 0
                exchange.check()

            with pytest.raises(ferry.OutOfOrder, match="another thread is in a call"):
                exchange.dispatch(LAYER.tokens[0], LAYER.ids[0], router_weight=router_weight)

    ferry.run_ranks(1, body)


def test_from_one_thread():
    exchanges = ferry.run_worlds(ferry.make_thread_worlds(3), open_exchange)
    arrivals = ferry.dispatch_all(exchanges, [dict(tokens=LAYER.tokens[rank], topk_ids=LAYER.ids[rank],
                                                   router_weight=weight_of(rank)) for rank in range(3)])
    epilogues = [Sums(rank) for rank in range(3)]
    rows = [dict(rows=LAYER.results_of(rank, arrivals[rank]), epilogue=epilogues[rank]) for rank in range(3)]
    assert ferry.combine_all(exchanges, rows) == [None] * 3
    assert all(close(epilogue.whole(), rank) for rank, epilogue in enumerate(epilogues))
