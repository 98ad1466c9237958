"""What hooks raise, and that nothing of them stays."""

import gc
import sys
import time
import weakref

import numpy as np
import pytest

import ferry
from hooked import LAYER, WORKERS, close, dispatched, open_exchange, sums_of, weight_of


class Fails:
    """A hook that raises from its nth call on."""

    def __init__(self, error, good_calls=0, hook=None):
        self.error, self.left, self.hook = error, good_calls, hook

    def __call__(self, *given):
        self.left -= 1
        if self.left < 0:
            raise self.error
        return self.hook(*given)


def raises(error, call):
    with pytest.raises(type(error)) as raised:
        call()
    assert raised.value is error


def go(*references):
    """Whether nothing but garbage has them. A collection does nothing while another thread is in one."""
    for _ in range(30):
        gc.collect()
        if not any(reference() for reference in references):
            return True
        time.sleep(0.01)
    return False


def raise_in_combine(exchange, rows, error, good):
    """The router_weight of that combine."""
    hook = Fails(error, 1000, good)
    raises(error, lambda: exchange.combine(rows, epilogue=Fails(error), router_weight=hook))
    error.__traceback__ = None  # it keeps what was there when the error was raised
    return hook


@WORKERS
@pytest.mark.parametrize("kind", [ValueError, ferry.OutOfOrder, SystemExit])
def test_what_a_hook_raises_comes_out_and_the_call_may_be_made_again(workers, kind):
    def body(world):
        rank = world.rank
        if rank == 1:  # it has no tokens, and so calls no hook
            with open_exchange(world, reduction="exact", result_format="f32", workers=workers) as exchange:
                for _ in range(2):
                    exchange.combine(LAYER.results_of(rank, dispatched(exchange, rank)))
            return
        error, good = kind("mine"), weight_of(rank)
        with open_exchange(world, reduction="exact", result_format="f32", workers=workers) as exchange:
            rows = LAYER.results_of(rank, dispatched(exchange, rank))
            exchange.combine_async(rows, router_weight=Fails(error, 3, good))
            raises(error, exchange.combine_wait)
            exchange._combining["router_weight"].left = 1000  # its caller has mended it
            raises(error, lambda: exchange.combine_wait(epilogue=Fails(error)))
            assert np.allclose(exchange.combine_wait(dtype=np.float32), sums_of(rank), rtol=1e-6, atol=1e-3)
            rows = LAYER.results_of(rank, dispatched(exchange, rank))
            kept = weakref.ref(raise_in_combine(exchange, rows, error, good))
            gc.collect()
            assert kept() is not None  # combine_wait calls it
            assert np.allclose(exchange.combine_wait(dtype=np.float32), sums_of(rank), rtol=1e-6, atol=1e-3)
            assert go(kept)

    ferry.run_ranks(3, body)


@WORKERS
@pytest.mark.parametrize("capacity", [None, 64])
def test_a_dispatch_whose_hook_raised_may_be_made_again(workers, capacity):
    def body(world):
        rank = world.rank
        error = ValueError("mine")
        with open_exchange(world, late_weights=True, workers=workers) as exchange:
            for _ in range(2):
                if len(LAYER.tokens[rank]) > 0:
                    raises(error, lambda: dispatched(exchange, rank, router_weight=Fails(error, 2, weight_of(rank)),
                                                     row_capacity=capacity))
                rows = LAYER.results_of(rank, dispatched(exchange, rank, row_capacity=capacity))
                if len(LAYER.tokens[rank]) > 0:
                    raises(error, lambda: exchange.combine(rows, router_weight=Fails(error, 2, weight_of(rank))))
                assert close(exchange.combine(rows, router_weight=weight_of(rank)), rank)

    ferry.run_ranks(3, body)


@WORKERS
@pytest.mark.parametrize("where", ["dispatch", "combine"])
def test_the_other_ranks_do_not_wait_for_one_whose_hook_raised(workers, where):
    seen = []
    error = KeyError("mine")

    def body(world):
        rank = world.rank
        with open_exchange(world, workers=workers) as exchange:
            try:
                for _ in range(3):
                    fails = {"router_weight": Fails(error)} if where == "dispatch" and rank == 2 else {}
                    rows = LAYER.results_of(rank, dispatched(exchange, rank, **fails))
                    exchange.combine(rows, **({"epilogue": Fails(error)} if where == "combine" and rank == 2 else {}))
            except ferry.PeerMissing as missing:
                seen.append(missing)
                raise

    start = time.monotonic()
    with pytest.raises(KeyError) as raised:
        ferry.run_ranks(3, body)
    assert raised.value is error and time.monotonic() - start < 10
    assert len(seen) == 2 and all(one.rank == 2 and one.absence != "late" for one in seen)


def test_a_weight_that_is_no_number():
    def body(world):
        with open_exchange(world) as exchange:
            for weight, text in ((None, "None"), (True, "True"), ("1", "'1'")):
                with pytest.raises(TypeError, match=rf"router_weight\(0, \d\) is {text}; it must be a number"):
                    exchange.dispatch(LAYER.tokens[0], LAYER.ids[0], router_weight=lambda token, k: weight)

    ferry.run_ranks(1, body)


class Mine(ValueError):
    """Takes weak references, which the exceptions of Python do not."""


def rounds_with_hooks(exchange, rank, times):
    """Weak references to hooks that nobody needs any more, to what they raised, and to what they were given."""
    gone, weight = [], weight_of(rank)

    def epilogue(token, column, values):
        gone.append(weakref.ref(values))

    before = sys.getrefcount(weight), sys.getrefcount(epilogue)
    for _ in range(times):
        once = Fails(Mine())
        gone += [weakref.ref(once), weakref.ref(once.error)]
        with pytest.raises(Mine):
            dispatched(exchange, rank, router_weight=once)
        rows = LAYER.results_of(rank, dispatched(exchange, rank, router_weight=weight))
        exchange.combine_async(rows)
        with pytest.raises(Mine):
            exchange.combine_wait(epilogue=once)
        exchange.combine_wait(epilogue=epilogue)
        del once
    assert (sys.getrefcount(weight), sys.getrefcount(epilogue)) == before
    return gone


@WORKERS
def test_nothing_of_hooks_stays(workers):
    def body(world):
        with open_exchange(world, workers=workers) as exchange:
            gone = rounds_with_hooks(exchange, 0, 30)
            assert go(*gone)
            before = len(gc.get_objects())
            rounds_with_hooks(exchange, 0, 100)
            gc.collect()
            assert len(gc.get_objects()) - before < 50

    ferry.run_ranks(1, body)


def test_a_hook_that_has_its_exchange_goes_with_it():
    def body(world):
        exchange = open_exchange(world, reduction="exact")
        exchange.dispatch(LAYER.tokens[0], LAYER.ids[0])
        rows = np.zeros((64, 1088), np.float32)
        exchange.combine_async(rows, router_weight=lambda token, k: exchange.rank)
        gone = weakref.ref(exchange)
        return gone, sys.getrefcount(rows)

    gone, _ = ferry.run_ranks(1, body)[0]
    assert go(gone)
