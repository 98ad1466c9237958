"""What may go wrong on GPUs between the halves of a call, with CPU ranks in their place: the exchange goes on."""

import numpy as np
import pytest

import ferry
from as_gpu import CalledAsOnGpus, FindsLate, Framework
from oracle import make_layer

LAYER = make_layer(2, 4, 2, 64, [3, 5])
SHAPE = dict(experts=LAYER.experts, top_k=2, max_tokens=5, hidden=64)
LATE = ("wait_for_counts", "dispatch_wait", "combine_wait")  # they poll before all else


def given(rank):
    return dict(tokens=LAYER.tokens[rank], topk_ids=LAYER.ids[rank], topk_weights=LAYER.weights[rank])


def assert_sums(sums, rank):
    want = LAYER.sums(rank, lambda expert: expert + 1)
    np.testing.assert_allclose(np.asarray(sums, np.float32), want, rtol=2.0**-6, atol=2.0**-6 * np.abs(want).max())


def findings(count):
    return [ferry.InvalidArgument(f"rank 0: topk_ids[{place}][0] was 99") for place in range(count)]


@pytest.mark.parametrize("count", (1, 2))
def test_an_error_of_an_earlier_dispatch_says_that_this_one_is_lost(count):
    def body(world):
        rank = world.rank
        with ferry.Exchange(world, **SHAPE) as exchange:
            core = FindsLate(exchange, LATE)
            if rank == 0:
                core.found += findings(count)
                with pytest.raises(ferry.InvalidArgument, match=r"topk_ids\[0\]\[0\] was 99. Meanwhile this dispatch has "
                                                                "travelled, and its rows at rank 0 are lost"):
                    exchange.dispatch(**given(rank))
                assert not core.found
            else:
                exchange.dispatch(**given(rank))
            arrivals = exchange.dispatch(**given(rank))
            assert_sums(exchange.combine(LAYER.results_of(rank, arrivals)), rank)

    ferry.run_ranks(2, body)


@pytest.mark.parametrize("name", ("torch", "cupy"))
def test_a_dispatch_that_asks_for_counts_is_refused_in_a_capture(name, monkeypatch):
    framework = Framework(name, monkeypatch)

    def body(world):
        exchange = framework.called_as_on_gpu(ferry.Exchange(world, **SHAPE, row_orders=["by_expert", "padded"]))
        one = dict(tokens=LAYER.tokens[0], topk_ids=LAYER.ids[0])
        usual, worst = framework.stream, exchange.layout.least_rows("by_expert", 0)
        for captured, stream in ((usual, None), (5, 5)):
            framework.captured = {captured}
            with pytest.raises(ferry.OutOfOrder, match="rank 0: dispatch: the stream is being captured.* row_capacity"):
                exchange.dispatch(**one, stream=stream)
            outputs = exchange.allocate_outputs(stream=stream)
            for room in ({"outputs": outputs}, {"row_capacity": worst}, {"row_order": "padded"}):
                exchange.dispatch(**one, **room, stream=stream)
        exchange.dispatch(**one)  # stream 5 is captured, and this one is not
        assert exchange.stats()["dispatches"] == 7

    ferry.run_ranks(1, body)


class Memory:
    """`allocate` of an exchange: numpy, unless it is told to fail."""

    fails = False

    def __call__(self, name, shape, dtype):
        if self.fails and name in ("src_info", "sums"):
            raise MemoryError(name)
        return ferry._arrays.empty(shape, dtype)


def test_without_a_framework_the_callers_memory_ends_a_dispatch():
    """There is no other one on a GPU. While it fails the dispatch stays half done, and the next one ends it."""
    def body(world):
        memory, rank = Memory(), world.rank
        exchange = ferry.Exchange(world, **SHAPE, allocate=memory)
        exchange._on_cpu, exchange._device = False, "cuda:0"
        memory.fails = rank == 0
        if rank == 0:
            with pytest.raises(MemoryError):
                exchange.dispatch(**given(rank), stream=0)
            memory.fails = False
        else:
            exchange.dispatch(**given(rank), stream=0)
        arrivals = exchange.dispatch(**given(rank), stream=0)
        assert_sums(exchange.combine(LAYER.results_of(rank, arrivals), stream=0), rank)

    ferry.run_ranks(2, body)


def opened(**options):
    worlds = ferry.make_thread_worlds(LAYER.ranks)
    return ferry.run_worlds(worlds, lambda world: CalledAsOnGpus(world, **SHAPE, deadline=4.0, **options))


def calls():
    return [given(rank) for rank in range(LAYER.ranks)]


def assert_round(exchanges):
    rows = [dict(rows=LAYER.results_of(rank, arrivals))
            for rank, arrivals in enumerate(ferry.dispatch_all(exchanges, calls()))]
    for rank, sums in enumerate(ferry.combine_all(exchanges, rows)):
        assert_sums(sums, rank)


@pytest.mark.parametrize("bad, error", (({"extra": ["colour"]}, "extra names colour"), ({"extra": 3}, "extra is 3"),
                                        ({"zero_padding": 1}, "zero_padding is 1"),
                                        ({"leave_handle": 1}, "leave_handle is 1"),
                                        ({"row_capacity": "9"}, "row_capacity is '9'")))
def test_dispatch_all_refuses_what_the_second_halves_could_not_fill(bad, error):
    exchanges = opened()
    with pytest.raises((TypeError, ferry.InvalidArgument), match=error):
        ferry.dispatch_all(exchanges, calls(), **bad)
    assert all(exchange.stats()["dispatches"] == 0 for exchange in exchanges)
    assert_round(exchanges)


@pytest.mark.parametrize("bad, error", (({"dtype": "int8"}, "dtype is 'int8'"),
                                        ({"dtype": "f32", "epilogue": lambda *_: None}, "unreduced or dtype is given"),
                                        ({"handle": np.zeros(64, np.uint8)}, "out is None")))
def test_combine_all_refuses_what_the_second_halves_could_not_fill(bad, error):
    exchanges = opened()
    rows = [dict(rows=LAYER.results_of(rank, arrivals))
            for rank, arrivals in enumerate(ferry.dispatch_all(exchanges, calls()))]
    with pytest.raises(ferry.InvalidArgument, match=error):
        ferry.combine_all(exchanges, rows, **bad)
    for rank, sums in enumerate(ferry.combine_all(exchanges, rows)):  # none has moved
        assert_sums(sums, rank)


@pytest.mark.parametrize("kind", ("memory", "late", "refused"))
def test_calls_of_all_end_where_a_second_half_fails(kind):
    memory = Memory()
    exchanges = opened(allocate=memory)
    core = FindsLate(exchanges[0], LATE)
    results = [LAYER.results_of(rank, arrivals) for rank, arrivals in enumerate(ferry.dispatch_all(exchanges, calls()))]

    def assert_fails(call, of_each, refused, text):
        memory.fails = kind == "memory"
        core.found += findings(2) if kind == "late" else []
        with pytest.raises(MemoryError if kind == "memory" else ferry.InvalidArgument,
                           match="src_info|sums" if kind == "memory" else text):
            call(exchanges, of_each, **(refused if kind == "refused" else {}))
        memory.fails = False

    assert_fails(ferry.combine_all, [dict(rows=rows) for rows in results], {"waited_ns": np.zeros(9, np.int64)},
                 "(topk_ids|waited_ns).* Meanwhile this combine has travelled, and its sums at rank 0 are lost")
    assert_round(exchanges)
    assert_fails(ferry.dispatch_all, calls(), {"row_capacity": 0},
                 "(topk_ids|payload).* Meanwhile this dispatch has travelled, and its rows at rank 0 are lost")
    assert_round(exchanges)
