"""dispatch_all and combine_all: one thread calls the exchanges of all ranks, beside the oracle."""

import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import devices
import ferry
from as_gpu import CalledAsOnGpus
from oracle import make_layer

LAYER = make_layer(4, 10, 2, 64, [5, 0, 3, 7])
SHAPE = dict(experts=10, top_k=2, max_tokens=8, hidden=64)
WHY_NO_GPUS = devices.why_no_gpus() or (None if ferry.cuda_devices() > 1 else "fewer than two GPUs were found")


def open_exchanges(**options):
    worlds = ferry.make_thread_worlds(LAYER.ranks)
    return ferry.run_worlds(worlds, lambda world: ferry.Exchange(world, **{**SHAPE, **options}))


def inputs_of(layer):
    return [dict(tokens=layer.tokens[rank], topk_ids=layer.ids[rank], topk_weights=layer.weights[rank])
            for rank in range(layer.ranks)]


def results_of(layer, rank, arrivals):
    """Expert e multiplies by e + 1."""
    values = arrivals.values()
    for group, expert in enumerate(layer.experts_of(rank)):
        values[arrivals.rows_of(group)] *= expert + 1
    return values


def assert_sums(all_sums, layer=LAYER):
    assert len(all_sums) == layer.ranks
    for rank, sums in enumerate(all_sums):
        want = layer.sums(rank, lambda expert: expert + 1)
        room = np.maximum(np.abs(want), np.abs(want).max(initial=1.0)) * layer.ranks * 2.0**-8
        assert sums.shape == want.shape and (np.abs(np.asarray(sums, np.float64) - want) <= room).all()


def test_a_round_from_one_thread():
    exchanges = open_exchanges()
    for capacity in (None, exchanges[0].layout.least_rows("by_expert", 0)):
        all_arrivals = ferry.dispatch_all(exchanges, inputs_of(LAYER), row_capacity=capacity, leave_handle=True)
        for rank, arrivals in enumerate(all_arrivals):
            values = arrivals.values()
            has = np.flatnonzero(arrivals.has_token)
            assert len(has) == len(LAYER.rows_of(rank)) and arrivals.handle is not None
            for row, (_, source, token, _) in zip(has, LAYER.rows_of(rank)):
                assert (values[row] == LAYER.tokens[source][token]).all()
        rows = [dict(rows=results_of(LAYER, rank, arrivals)) for rank, arrivals in enumerate(all_arrivals)]
        assert_sums(ferry.combine_all(exchanges, rows, deadline=20))
        out = [np.full((len(LAYER.tokens[rank]), 64), np.nan, np.float32) for rank in range(LAYER.ranks)]
        again = ferry.combine_all(exchanges, [{**one, "out": mine, "handle": arrivals.handle}
                                              for one, mine, arrivals in zip(rows, out, all_arrivals)])
        assert all(sums is mine for sums, mine in zip(again, out))
        assert_sums(again)


def test_none_is_called_where_one_cannot_be():
    exchanges, calls = open_exchanges(), inputs_of(LAYER)
    refused = [
        (exchanges, calls[:3], ValueError, "4 and 3 elements"),
        ([*exchanges[:3], exchanges[1]], calls, ValueError, r"exchanges\[1\] and exchanges\[3\] are the same"),
        ([*exchanges[:3], None], calls, TypeError, r"exchanges\[3\] is None"),
    ]
    for given, of_each, error, text in refused:
        for call in (ferry.dispatch_all, ferry.combine_all):
            with pytest.raises(error, match=f"{call.__name__}: .*{text}"):
                call(given, of_each)
    assert_sums(round_of(exchanges))  # nothing had moved
    exchanges[2].close()
    with pytest.raises(ValueError, match=r"dispatch_all: exchanges\[2\] is closed"):
        ferry.dispatch_all(exchanges, calls)
    assert [exchange.stats()["dispatches"] for exchange in (exchanges[0], exchanges[3])] == [1, 1]


def round_of(exchanges):
    all_arrivals = ferry.dispatch_all(exchanges, inputs_of(LAYER))
    return ferry.combine_all(exchanges, [dict(rows=results_of(LAYER, rank, arrivals))
                                         for rank, arrivals in enumerate(all_arrivals)])


def test_the_first_error_comes_out():
    exchanges, calls = open_exchanges(deadline=0.5), inputs_of(LAYER)
    calls[2]["topk_ids"] = calls[2]["topk_ids"].astype(np.float32)
    with pytest.raises(ferry.InvalidArgument, match="rank 2.*topk_ids"):
        ferry.dispatch_all(exchanges, calls)


def test_a_rank_that_is_not_called_is_missed():
    exchanges = open_exchanges(deadline=0.5)
    with pytest.raises(ferry.PeerMissing) as raised:
        ferry.dispatch_all(exchanges[:3], inputs_of(LAYER)[:3])
    assert raised.value.rank == 3


def test_without_outputs_all_first_halves_come_first():
    worlds = ferry.make_thread_worlds(LAYER.ranks)
    exchanges = ferry.run_worlds(worlds, lambda world: CalledAsOnGpus(world, **SHAPE, deadline=2.0))
    capacity = exchanges[0].layout.least_rows("padded", 0)
    for options in ({}, {"row_capacity": capacity, "row_order": "padded"}, {"extra": ["counts"], "leave_handle": True}):
        all_arrivals = ferry.dispatch_all(exchanges, inputs_of(LAYER), zero_padding=True, deadline=3, **options)
        assert all((arrivals.handle is not None) == ("leave_handle" in options) for arrivals in all_arrivals)
        assert all("counts" in arrivals.arrays for arrivals in all_arrivals if "extra" in options)
        rows = [dict(rows=results_of(LAYER, rank, arrivals)) for rank, arrivals in enumerate(all_arrivals)]
        sums = ferry.combine_all(exchanges, rows, dtype=np.float16)
        assert all(one.dtype == np.float16 for one in sums)
        assert_sums(sums)


def test_the_second_halves_take_what_a_combine_fills():
    worlds = ferry.make_thread_worlds(LAYER.ranks)
    exchanges = ferry.run_worlds(worlds, lambda world: CalledAsOnGpus(world, **SHAPE, deadline=4.0))
    rows = [dict(rows=results_of(LAYER, rank, arrivals))
            for rank, arrivals in enumerate(ferry.dispatch_all(exchanges, inputs_of(LAYER), leave_handle=True))]
    waited = [np.zeros(LAYER.ranks, np.int64) for _ in exchanges]
    assert_sums(ferry.combine_all(exchanges, [{**one, "waited_ns": mine} for one, mine in zip(rows, waited)]))
    assert all((mine >= 0).all() for mine in waited)  # mostly 0: all first halves came first
    ferry.dispatch_all(exchanges, inputs_of(LAYER))
    sums = [np.full((len(tokens), 64), np.nan, np.float32) for tokens in LAYER.tokens]

    def keeping(mine):
        def epilogue(token, column, values):
            mine[token, column:column + len(values)] = values
        return epilogue

    of_each = [{**one, "epilogue": keeping(mine)} for one, mine in zip(rows, sums)]
    assert ferry.combine_all(exchanges, of_each) == [None] * LAYER.ranks
    assert_sums(sums)


def test_no_exchanges_and_a_single_one():
    assert ferry.dispatch_all([], []) == [] and ferry.combine_all([], []) == []
    layer = make_layer(1, 3, 2, 32, [4])
    world, = ferry.make_thread_worlds(1)
    exchange = ferry.Exchange(world, experts=3, top_k=2, max_tokens=4, hidden=32)
    arrivals, = ferry.dispatch_all([exchange], inputs_of(layer))
    assert_sums(ferry.combine_all([exchange], [dict(rows=results_of(layer, 0, arrivals))]), layer)


def interrupted(script):
    """What the script prints behind "waiting", when it gets SIGINT then."""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout.readline() == "waiting\n"
        time.sleep(0.5)
        child.send_signal(signal.SIGINT)
        out, _ = child.communicate(timeout=120)
    assert child.returncode == 0
    return out


def test_ctrl_c_ends_the_waits_of_all():
    assert interrupted("""
import signal, numpy as np, ferry
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
worlds = ferry.make_thread_worlds(3)
shape = dict(experts=3, top_k=1, max_tokens=1, hidden=32, deadline=600.0)
exchanges = ferry.run_worlds(worlds, lambda world: ferry.Exchange(world, **shape))
one = dict(tokens=np.ones((1, 32), np.float32), topk_ids=np.zeros((1, 1), np.int32))
print("waiting", flush=True)
try:
    ferry.dispatch_all(exchanges[:2], [one, one])  # rank 2 does not come
except KeyboardInterrupt:
    print("interrupted")
""") == "interrupted\n"


@pytest.mark.skipif(WHY_NO_GPUS is not None, reason=WHY_NO_GPUS or "")
def test_ctrl_c_ends_a_wait_of_the_host_for_gpus():
    assert interrupted("""
import signal, torch, ferry
signal.signal(signal.SIGINT, signal.default_int_handler)
worlds = ferry.cuda_worlds(2, devices=[0, 0] if ferry.cuda_devices() == 1 else None)
shape = dict(experts=2, top_k=1, max_tokens=1, hidden=64, deadline=600.0)
first, second = ferry.run_worlds(worlds, lambda world: ferry.Exchange(world, **shape))
device = first.device
first.dispatch_async(torch.ones((1, 64), device=device), torch.zeros((1, 1), dtype=torch.int32, device=device))
print("waiting", flush=True)
try:
    first.wait_for_counts()  # rank 1 does not come
except KeyboardInterrupt:
    print("interrupted", flush=True)
try:
    worlds[1].barrier()
except ferry.Aborted as error:
    print(error.rank)
""") == "interrupted\n0\n"


@pytest.mark.skipif(WHY_NO_GPUS is not None, reason=WHY_NO_GPUS or "")
@pytest.mark.parametrize("ahead", [False, True])
def test_gpus_from_one_thread(ahead):
    layer = make_layer(2, 8, 2, 64, [4, 6])
    shape = dict(experts=8, top_k=2, max_tokens=6, hidden=64, deadline=10.0)
    worlds = ferry.cuda_worlds(2)
    exchanges = ferry.run_worlds(worlds, lambda world: ferry.Exchange(world, **shape))
    import torch
    streams = [torch.cuda.Stream(world.device) for world in worlds]
    calls = [{name: devices.on_gpu(array, world.device) for name, array in one.items()}
             for world, one in zip(worlds, inputs_of(layer))]
    calls = [{**one, "stream": stream} for one, stream in zip(calls, streams)]
    if ahead:
        calls = [{**one, "outputs": exchange.allocate_outputs(like=one["tokens"])}
                 for exchange, one in zip(exchanges, calls)]
    for index in range(2):
        torch.cuda.synchronize(index)
    all_arrivals = ferry.dispatch_all(exchanges, calls)
    for stream in streams:
        stream.synchronize()
    rows = [devices.on_gpu(results_of(layer, rank, arrivals), worlds[rank].device)
            for rank, arrivals in enumerate(all_arrivals)]
    waited = [torch.zeros(2, dtype=torch.int64, device=world.device) for world in worlds]
    for index in range(2):
        torch.cuda.synchronize(index)
    sums = ferry.combine_all(exchanges, [dict(rows=one, stream=stream, waited_ns=mine)
                                         for one, stream, mine in zip(rows, streams, waited)])
    for stream in streams:
        stream.synchronize()
    assert all(bool((mine >= 0).all()) for mine in waited)
    assert_sums([devices.on_host(one) for one in sums], layer)
