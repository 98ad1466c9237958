"""ferry.trace: what a file has of the rounds inside, and when it is written."""

import json
import time

import numpy as np
import pytest

import devices
import ferry
from oracle import make_layer

LAYER = make_layer(3, 8, 2, 64, [4, 5, 6], missing=0)


def run_rounds(run, rounds=2):
    def body(world):
        rank = world.rank
        with devices.open_exchange(world, experts=8, top_k=2, max_tokens=6, hidden=64) as exchange:
            for _ in range(rounds):
                arrivals = exchange.dispatch(LAYER.tokens[rank], LAYER.ids[rank], LAYER.weights[rank])
                exchange.combine(arrivals.values())

    run(3, body)


def events_of(path):
    return json.loads(path.read_text(encoding="utf-8"))["traceEvents"]


def calls_of(path):
    """The names of each rank's calls in the order of their begins."""
    calls = {}
    for event in sorted((each for each in events_of(path) if each["ph"] == "X"), key=lambda each: each["ts"]):
        if event["name"].split("_")[0] in ("dispatch", "combine", "wait") and event["name"] != "wait":
            calls.setdefault(event["pid"] % 10_000, []).append(event["name"])
    return calls


def test_every_call_of_every_rank(run, tmp_path):
    path = tmp_path / "trace.json"
    with ferry.trace(path):
        run_rounds(run)
    calls = calls_of(path)
    assert sorted(calls) == [0, 1, 2]
    for names in calls.values():
        assert [name for name in names if name.startswith("dispatch_a")] == ["dispatch_async"] * 2
        assert names.count("combine") == 2
    kernels = [event["name"] for event in events_of(path) if event["name"].startswith("combine kernel")]
    assert len(kernels) == (0 if run is devices.run_on_cpus else 3 * 2)
    sums = [event for event in events_of(path) if event["name"] == "sum" and event["tid"] > 2000]  # steps of kernels
    assert len(sums) == len(kernels)


def test_steps_of_cpu_ranks(tmp_path):
    path = tmp_path / "trace.json"
    with ferry.trace(str(path)):
        run_rounds(devices.run_on_cpus, rounds=1)
    steps = [event["name"] for event in events_of(path) if event["ph"] == "X" and event["pid"] % 10_000 == 0]
    counts = {step: steps.count(step) for step in ("route", "send", "lay out", "sum")}
    assert counts == {"route": 1, "send": 2, "lay out": 1, "sum": 1}  # dispatch and combine send


def test_waits_name_the_late_rank(tmp_path):
    path = tmp_path / "trace.json"

    def body(world):
        with ferry.Exchange(world, experts=8, top_k=2, max_tokens=6, hidden=64) as exchange:
            if world.rank == 2:
                time.sleep(0.05)
            exchange.dispatch(LAYER.tokens[world.rank], LAYER.ids[world.rank])

    with ferry.trace(path):
        ferry.run_ranks(3, body)
    waited = [event for event in events_of(path) if event["name"] == "rank 2" and event["dur"] > 20_000]
    assert {event["pid"] % 10_000 for event in waited} == {0, 1}


def test_nothing_before_and_after(tmp_path):
    run_rounds(devices.run_on_cpus)
    with ferry.trace(tmp_path / "empty.json"):
        pass
    run_rounds(devices.run_on_cpus)
    assert events_of(tmp_path / "empty.json") == []


def test_an_exception_leaves_a_whole_file(tmp_path):
    path = tmp_path / "trace.json"
    with pytest.raises(ferry.InvalidArgument), ferry.trace(path):
        run_rounds(devices.run_on_cpus, rounds=1)
        with ferry.make_thread_worlds(1)[0] as world, ferry.Exchange(world, experts=8, top_k=2, max_tokens=6,
                                                                     hidden=64) as exchange:
            exchange.dispatch(np.zeros((1, 64), np.float32), np.full((1, 2), 9, np.int32))
    assert any(event["args"].get("threw") for event in events_of(path))


def test_paths_that_cannot_be_written(tmp_path):
    for path in (tmp_path / "missing" / "trace.json", tmp_path):
        with pytest.raises(OSError), ferry.trace(path):
            pytest.fail("the block has begun")
    with ferry.trace(tmp_path / "trace.json"):
        pass


def test_one_at_a_time(tmp_path):
    with ferry.trace(tmp_path / "a.json"):
        with pytest.raises(ferry.OutOfOrder), ferry.trace(tmp_path / "b.json"):
            pass
    assert not (tmp_path / "b.json").exists()
