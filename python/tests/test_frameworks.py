"""Memory and streams of torch and cupy, with stand-ins for both: on which stream memory is made, and who owns one."""

import sys
import types
import weakref

import numpy as np
import pytest

import ferry
from as_gpu import Array, Framework
from ferry import _activation, _frameworks
from oracle import make_layer

LAYER = make_layer(1, 4, 2, 64, [3])
SHAPE = dict(experts=LAYER.experts, top_k=2, max_tokens=5, hidden=64)
ONE = dict(tokens=LAYER.tokens[0], topk_ids=LAYER.ids[0])


@pytest.fixture(params=("torch", "cupy"), name="framework")
def _framework(request, monkeypatch):
    return Framework(request.param, monkeypatch)


def with_exchange(framework, body, **options):
    ferry.run_ranks(1, lambda world: body(framework.called_as_on_gpu(ferry.Exchange(world, **SHAPE, **options))))


def test_results_are_made_on_the_stream_of_the_call(framework):
    def body(exchange):
        def made_on(stream, call, *arguments, **named):
            framework.made.clear()
            result = call(*arguments, **named, stream=stream)
            assert framework.stream == 3 and set(framework.made) == {3 if stream is None else stream}
            return result

        with framework.on(3):
            for stream in (None, 7, 0):
                for room in ({}, {"row_capacity": exchange.layout.min_row_capacity}):
                    arrivals = made_on(stream, exchange.dispatch, **ONE, **room)
                    rows = LAYER.results_of(0, arrivals)
                    made_on(stream, exchange.combine, rows)
                made_on(stream, exchange.allocate_outputs)
                exchange.dispatch_async(**ONE, stream=stream)
                made_on(stream, exchange.dispatch_wait)
                exchange.combine_async(rows, stream=stream)
                made_on(stream, exchange.combine_wait)

    with_exchange(framework, body)


def test_swiglu_makes_its_results_on_its_stream(framework, monkeypatch):
    cleared = []
    monkeypatch.setattr(_activation, "_ferry", types.SimpleNamespace(
        clear=lambda array, stream: cleared.append(stream), swiglu=lambda *_: None,
        swiglu_scales_shape=lambda *_: (3, 2)))
    rows, offsets = np.ones((3, 128), np.float32).view(Array), np.zeros(2, np.uint32).view(Array)
    with framework.on(3):
        for stream, number in ((None, 3), (7, 7)):
            framework.made.clear()
            ferry.swiglu(rows, offsets, format="fp8_block128", stream=stream)
            assert framework.made == [number] * 2 and cleared[-2:] == [number] * 2


@pytest.mark.parametrize("number", [0, 1])
def test_the_default_stream_of_torch(number, monkeypatch):
    framework = Framework("torch", monkeypatch)
    with framework.on(3):
        with _frameworks.on_stream("torch", number, "cuda:0"):
            assert framework.stream == 0
        framework.captured = {100, 101}
        assert not _frameworks.is_capturing("torch", number, "cuda:0")


class Stream:
    """A stream that somebody owns."""

    def __cuda_stream__(self):
        return 0, 9


def test_the_stream_of_the_newest_call_lives_until_the_next_call(framework):
    def body(exchange):
        stream = Stream()
        is_alive = weakref.ref(stream)
        exchange.dispatch(**ONE, row_capacity=exchange.layout.min_row_capacity, stream=stream)
        del stream
        exchange.allocate_outputs(stream=5)
        assert is_alive() is not None
        exchange.dispatch(**ONE, stream=5)
        assert is_alive() is None

    with_exchange(framework, body)


def test_classes_that_inherit_from_arrays_of_a_framework_are_its_arrays(framework, monkeypatch):
    array = np.zeros(2).view(type("Mine", (Array,), {"__module__": "somebody"}))
    assert _frameworks.framework_of(array) == framework.name
    assert _frameworks.framework_of(np.zeros(2)) == _frameworks.framework_of(None) == ""
    monkeypatch.setitem(sys.modules, framework.name, types.ModuleType(framework.name))  # it is being imported
    assert _frameworks.framework_of(array) == ""
