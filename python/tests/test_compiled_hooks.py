"""router_weight and epilogue as compiled functions: their contexts, and that they run without the GIL."""

import ctypes
import gc
import shutil
import subprocess
import types

import numpy as np
import pytest

import ferry
from hooked import LAYER, close, open_exchange

COMPILER = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
TEXT = """
struct context {
  int (*holds_gil)(void);
  const float* weights;
  float* sums;
  int calls, calls_with_gil;
};
static void note(struct context* c) {
  __atomic_fetch_add(&c->calls, 1, __ATOMIC_RELAXED);
  if (c->holds_gil()) __atomic_fetch_add(&c->calls_with_gil, 1, __ATOMIC_RELAXED);
}
float weight(void* context, int token, int k) {
  struct context* c = context;
  note(c);
  return c->weights[3 * token + k];
}
void keep(void* context, int token, int column, const float* values, int count) {
  struct context* c = context;
  note(c);
  for (int i = 0; i < count; ++i) c->sums[1088 * token + column + i] += values[i];
}
float weight_in_array(void* context, int token, int k) { return ((const float*)context)[3 * token + k]; }
float one(void* context, int token, int k) { return context == 0 ? 1.0f : 0.0f; }
"""
WEIGHT = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_void_p, ctypes.c_int, ctypes.c_int)
EPILOGUE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.POINTER(ctypes.c_float), ctypes.c_int)


class Context(ctypes.Structure):
    _fields_ = [("holds_gil", ctypes.c_void_p), ("weights", ctypes.c_void_p), ("sums", ctypes.c_void_p),
                ("calls", ctypes.c_int), ("calls_with_gil", ctypes.c_int)]


@pytest.fixture(scope="module", name="library")
def _library(tmp_path_factory):
    if COMPILER is None:
        pytest.skip("no C compiler was found")
    folder = tmp_path_factory.mktemp("hooks")
    (folder / "hooks.c").write_text(TEXT, encoding="utf-8")
    subprocess.run([COMPILER, "-O1", "-shared", "-fPIC", "-o", folder / "hooks.so", folder / "hooks.c"], check=True,
                   timeout=60)
    return ctypes.CDLL(str(folder / "hooks.so"))


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("reduction", ["by_rank", "exact"])
def test_they_run_without_the_gil(library, workers, reduction):
    def body(world):
        rank = world.rank
        sums = np.zeros(LAYER.tokens[rank].shape, np.float32)
        context = Context(ctypes.cast(ctypes.pythonapi.PyGILState_Check, ctypes.c_void_p),
                          LAYER.weights[rank].ctypes.data, sums.ctypes.data, 0, 0)
        weight = dict(router_weight=library.weight, router_weight_context=ctypes.pointer(context))
        of_dispatch, of_combine = (weight, {}) if reduction == "by_rank" else ({}, weight)
        with open_exchange(world, reduction=reduction, workers=workers) as exchange:
            arrivals = exchange.dispatch(LAYER.tokens[rank], LAYER.ids[rank], **of_dispatch)
            exchange.combine_async(LAYER.results_of(rank, arrivals), **of_combine)
            exchange.combine_wait(epilogue=library.keep, epilogue_context=context)
        assert close(sums, rank)
        assert context.calls == (LAYER.ids[rank] >= 0).sum() + len(sums) * 3 and context.calls_with_gil == 0

    ferry.run_ranks(3, body)


def test_every_guise_of_function_and_context(library):
    library.weight_in_array.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int]
    library.weight_in_array.restype = ctypes.c_float
    address = ctypes.cast(library.weight_in_array, ctypes.c_void_p).value
    functions = [library.weight_in_array, WEIGHT(address), types.SimpleNamespace(address=address),
                 types.SimpleNamespace(ctypes=WEIGHT(address), address="elsewhere")]

    def body(world):
        rank = world.rank
        weights = LAYER.weights[rank]
        in_c = (ctypes.c_float * weights.size)(*weights.ravel())
        contexts = [weights, weights.ctypes.data, np.int64(weights.ctypes.data), ctypes.c_void_p(weights.ctypes.data), in_c,
                    ctypes.pointer(in_c)]
        with open_exchange(world) as exchange:
            for function, context in [(function, weights) for function in functions] + [(WEIGHT(address), context)
                                                                                        for context in contexts]:
                arrivals = exchange.dispatch(LAYER.tokens[rank], LAYER.ids[rank], router_weight=function,
                                             router_weight_context=context)
                assert close(exchange.combine(LAYER.results_of(rank, arrivals)), rank)
            plain = exchange.dispatch(LAYER.tokens[rank], LAYER.ids[rank], np.ones_like(weights))
            sums = exchange.combine(LAYER.results_of(rank, plain))
            arrivals = exchange.dispatch(LAYER.tokens[rank], LAYER.ids[rank], router_weight=library.one)  # context is null
            assert (exchange.combine(LAYER.results_of(rank, arrivals)) == sums).all()

    ferry.run_ranks(3, body)


def test_the_context_of_a_first_half_lives_until_the_second(library):
    def body(world):
        rank = world.rank
        with open_exchange(world, reduction="exact") as exchange:
            arrivals = exchange.dispatch(LAYER.tokens[rank], LAYER.ids[rank])
            rows = LAYER.results_of(rank, arrivals)
            exchange.combine_async(rows, router_weight=WEIGHT(("weight_in_array", library)),
                                   router_weight_context=LAYER.weights[rank].copy())
            gc.collect()
            others = [np.full_like(LAYER.weights[rank], np.nan) for _ in range(100)]
            assert close(exchange.combine_wait(), rank)
            return len(others)

    ferry.run_ranks(3, body)


def test_a_function_of_python_behind_a_pointer_of_c():
    """ctypes takes the GIL for it."""
    def body(world):
        rank = world.rank
        sums = np.zeros(LAYER.tokens[rank].shape, np.float32)

        def keep(context, token, column, values, count):
            sums[token, column:column + count] = np.ctypeslib.as_array(values, (count,))

        with open_exchange(world, workers=2) as exchange:
            arrivals = exchange.dispatch(LAYER.tokens[rank], LAYER.ids[rank], router_weight=WEIGHT(
                lambda context, token, k: LAYER.weights[rank][token, k]))
            exchange.combine(LAYER.results_of(rank, arrivals), epilogue=EPILOGUE(keep))
        assert close(sums, rank)

    ferry.run_ranks(3, body)


def test_refused():
    wrong = [ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_void_p, ctypes.c_int, ctypes.c_int),
             ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_int, ctypes.c_int),
             ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_void_p, ctypes.c_long, ctypes.c_int)]

    def body(world):
        with open_exchange(world) as exchange:
            given = (LAYER.tokens[0], LAYER.ids[0])
            for kind in wrong:
                with pytest.raises(TypeError, match=r"router_weight is '\(.*; it must be float \(\*\)\(void"):
                    exchange.dispatch(*given, router_weight=kind(lambda *them: 1.0))
            good = WEIGHT(lambda *them: 1.0)
            with pytest.raises(TypeError, match="router_weight_context is 'a'; it must be an address"):
                exchange.dispatch(*given, router_weight=good, router_weight_context="a")
            with pytest.raises(TypeError, match="router_weight_context is -1; it must be an address"):
                exchange.dispatch(*given, router_weight=good, router_weight_context=-1)
            for null in (WEIGHT(0), types.SimpleNamespace(address=0)):
                with pytest.raises(ferry.InvalidArgument, match="router_weight is a null pointer"):
                    exchange.dispatch(*given, router_weight=null)
            rows = LAYER.results_of(0, exchange.dispatch(*given))
            with pytest.raises(TypeError, match=r"epilogue is '\(c_void_p, c_int, c_int\) -> c_float'; it must be void"):
                exchange.combine(rows, epilogue=good)

    ferry.run_ranks(1, body)
