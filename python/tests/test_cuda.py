"""What GPU ranks add: memory and streams of torch and cupy, refusals, late errors, graphs. The suites that run on CPUs
as well are in the other files."""

import threading
import weakref

import numpy as np
import pytest

import devices
import ferry
from conftest import GPUS
from oracle import make_layer

WHY_NOT = devices.why_no_gpus()
pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or "")
if WHY_NOT is None:
    import torch

LAYER = make_layer(2, 8, 2, 256, [4, 6])
SHAPE = dict(experts=8, top_k=2, max_tokens=6, hidden=256)


def inputs_on(world, layer=LAYER):
    rank = world.rank
    return [devices.on_gpu(array[rank], world.device) for array in (layer.tokens, layer.ids, layer.weights)]


def results_of(arrivals, rank, layer=LAYER):
    """Expert e multiplies by e + 1: f32 on the GPU."""
    return devices.on_gpu(layer.results_of(rank, arrivals), arrivals.payload.device)


def assert_sums(sums, rank, layer=LAYER):
    want = layer.sums(rank, lambda expert: expert + 1)
    assert np.abs(devices.on_host(sums).astype(np.float64) - want).max() <= 0.02 * np.abs(want).max()


def refuses(call, error, *words):
    with pytest.raises(error) as raised:
        call()
    assert all(word in str(raised.value) for word in words), raised.value


def test_what_is_made_is_of_torch_on_the_gpu_of_the_rank():
    def body(world):
        assert world.kind == "cuda" and world.capabilities()["device_memory"]
        with ferry.Exchange(world, **SHAPE, format="fp8_block128") as exchange:
            with pytest.raises(TypeError, match="like"):
                exchange.allocate_outputs()
            with pytest.raises(ValueError, match="colour; rows by_expert have"):
                exchange.allocate_outputs(extra=["colour"])
            tokens, ids, weights = inputs_on(world)
            made = exchange.allocate_outputs(like=tokens, extra=["waited_ns", "handle"])
            arrivals = exchange.dispatch(tokens, ids, weights, extra=["waited_ns"])
            assert not devices.on_host(made["waited_ns"]).any()
            for arrays in (made, arrivals.arrays):
                assert all(str(array.device) == world.device == exchange.device for array in arrays.values())
            assert arrivals.payload.dtype == torch.uint8 and arrivals.scales.dtype == torch.float32
            assert arrivals.row_offsets.dtype == torch.int32
            assert arrivals.payload.shape[0] == arrivals.rows
            rows = results_of(arrivals, world.rank)
            assert exchange.combine(rows).dtype == torch.float32
            exchange.dispatch(tokens, ids, weights)
            assert exchange.combine(rows, dtype=torch.bfloat16).dtype == torch.bfloat16

    GPUS.run(2, body)


def test_bad_arguments_are_refused_before_anything_moves():
    def body(world):
        with ferry.Exchange(world, **SHAPE) as exchange:
            tokens, ids, weights = inputs_on(world)
            n, host = tokens.shape[0], LAYER.tokens[world.rank]
            wide, apart = weights.double(), ids.t().contiguous().t()
            outputs = exchange.allocate_outputs(like=tokens)
            refuses(lambda: exchange.dispatch(host, ids), ValueError, "tokens", "host memory", world.device[-1])
            refuses(lambda: exchange.dispatch(tokens, LAYER.ids[world.rank]), ValueError, "topk_ids", "host memory")
            refuses(lambda: exchange.dispatch(tokens.view(torch.int32), ids), ValueError, "tokens", "i32")
            refuses(lambda: exchange.dispatch(tokens[:, :128], ids), ValueError, "tokens", f"[{n}, 128]", "256")
            refuses(lambda: exchange.dispatch(tokens, ids[:2]), ValueError, "topk_ids", "[2, 2]", str(n))
            refuses(lambda: exchange.dispatch(tokens, apart), ValueError, "topk_ids", "contiguous")
            refuses(lambda: exchange.dispatch(tokens, ids, wide), ValueError, "topk_weights", "f64")
            refuses(lambda: exchange.dispatch(tokens, ids, input_scale=2.0), ValueError, "input_scale", "2.0", "[1]")
            refuses(lambda: exchange.dispatch(tokens, ids, stream="s"), TypeError, "stream")
            refuses(lambda: exchange.dispatch(tokens, ids, max_blocks=1), ValueError, "max_blocks", "1", "3")
            refuses(lambda: exchange.dispatch(tokens, None), ValueError, "topk_ids")
            there = {**outputs, "payload": outputs["payload"].cpu()}
            refuses(lambda: exchange.dispatch(tokens, ids, weights, outputs=there), ValueError, "payload", "host memory")
            assert exchange.stats()["dispatches"] == 0
            world.barrier()
            arrivals = exchange.dispatch(tokens, ids, weights)
            rows = results_of(arrivals, world.rank)
            world.barrier()
            refuses(lambda: exchange.combine(rows.cpu()), ValueError, "rows", "host memory")
            refuses(lambda: exchange.combine(rows[:, :128]), ValueError, "rows", "128", "256")
            refuses(lambda: exchange.combine(rows.double()), ValueError, "float64", "bfloat16")
            world.barrier()
            assert_sums(exchange.combine(rows), world.rank)

    GPUS.run(2, body)


@pytest.mark.skipif(ferry.cuda_devices() < 2, reason="takes two GPUs")
def test_hooks_are_refused_and_staged_ranks_take_them():
    def hook(*_):
        return 1.0

    def refused(world):
        assert not world.capabilities()["function_hooks"]
        with ferry.Exchange(world, **SHAPE) as exchange:
            tokens, ids, weights = inputs_on(world)
            for call in (exchange.dispatch, exchange.dispatch_async):
                refuses(lambda: call(tokens, ids, router_weight=hook), ferry.Unsupported, "router_weight", "CompiledExchange")
            arrivals = exchange.dispatch(tokens, ids, weights)
            rows = results_of(arrivals, world.rank)
            refuses(lambda: exchange.combine(rows, epilogue=hook), ferry.Unsupported, "epilogue", "CompiledExchange")
            assert_sums(exchange.combine(rows), world.rank)

    def taken(world):
        rank = world.rank
        sums = np.zeros(LAYER.tokens[rank].shape, np.float32)

        def epilogue(token, column, values):
            sums[token, column:column + len(values)] += values

        with ferry.Exchange(world, **SHAPE) as exchange:
            arrivals = exchange.dispatch(LAYER.tokens[rank], LAYER.ids[rank],
                                         router_weight=lambda token, k: LAYER.weights[rank][token, k])
            exchange.combine(LAYER.results_of(rank, arrivals), epilogue=epilogue)
        want = LAYER.sums(rank, lambda expert: expert + 1)
        assert np.abs(sums - want).max() <= 0.02 * np.abs(want).max()

    GPUS.run(2, refused)
    worlds = ferry.cuda_worlds(2, devices=[0, ferry.cuda_devices() - 1], staged=True)
    ferry.run_worlds(worlds, taken)


@pytest.mark.skipif(ferry.cuda_devices() < 2, reason="takes two GPUs")
def test_memory_and_streams_of_another_gpu_are_refused():
    def body(world):
        other = 1 - world.rank
        with ferry.Exchange(world, **SHAPE) as exchange:
            tokens, ids, weights = inputs_on(world)
            there = tokens.to(f"cuda:{other}")
            words = f"device {other}", f"device {world.rank}"
            refuses(lambda: exchange.dispatch(there, ids), ValueError, "tokens", *words)
            refuses(lambda: exchange.dispatch(tokens, ids, stream=torch.cuda.Stream(f"cuda:{other}")), ValueError,
                    "stream", *words)
            arrivals = exchange.dispatch(tokens, ids, weights)
            refuses(lambda: exchange.combine(results_of(arrivals, world.rank).to(f"cuda:{other}")), ValueError, "rows",
                    *words)
            assert_sums(exchange.combine(results_of(arrivals, world.rank)), world.rank)

    GPUS.run(2, body)


class HasStream:
    def __init__(self, number):
        self.number = number

    def __cuda_stream__(self):
        return 0, self.number


def test_streams_in_every_guise():
    def body(world):
        rank, mine = world.rank, torch.cuda.current_stream()
        tokens, ids, weights = inputs_on(world)
        with ferry.Exchange(world, **SHAPE) as exchange:
            for stream in (None, mine, mine.cuda_stream, HasStream(mine.cuda_stream)):
                arrivals = exchange.dispatch(tokens, ids, weights, stream=stream)
                assert_sums(exchange.combine(results_of(arrivals, rank), stream=stream), rank)
                exchange.dispatch_async(tokens, ids, weights, stream=stream)
                arrivals = exchange.dispatch_wait()
                exchange.combine_async(results_of(arrivals, rank), stream=stream)
                assert_sums(exchange.combine_wait(), rank)

    GPUS.run(2, body)


def test_the_newest_stream_lives_until_the_next_call():
    def body(world):
        tokens, ids, weights = inputs_on(world)
        with ferry.Exchange(world, **SHAPE) as exchange:
            streams = [HasStream(torch.cuda.current_stream().cuda_stream) for _ in range(2)]
            dropped = [weakref.ref(stream) for stream in streams]
            exchange.dispatch(tokens, ids, weights, stream=streams.pop(0))
            assert dropped[0]() is not None
            arrivals = exchange.dispatch(tokens, ids, weights, stream=streams.pop())
            assert dropped[0]() is None and dropped[1]() is not None
            assert_sums(exchange.combine(results_of(arrivals, world.rank)), world.rank)

    GPUS.run(2, body)


def test_bad_ids_come_with_the_next_call():
    def body(world):
        tokens, ids, weights = inputs_on(world)
        with ferry.Exchange(world, **SHAPE) as exchange:
            bad = ids.clone().fill_(99) if world.rank == 0 else ids
            world.barrier()
            exchange.dispatch(tokens, bad, weights, outputs=exchange.allocate_outputs(like=tokens))
            torch.cuda.current_stream().synchronize()
            world.barrier()
            if world.rank == 0:
                refuses(exchange.check, ValueError, "99")
            exchange.check()
            world.barrier()

    GPUS.run(2, body)


def test_a_rank_that_does_not_come_is_named():
    def body(world):
        tokens, ids, weights = inputs_on(world)
        with ferry.Exchange(world, **SHAPE, deadline=0.5) as exchange:
            world.barrier()
            if world.rank == 0:
                exchange.dispatch(tokens, ids, weights, outputs=exchange.allocate_outputs(like=tokens))
                torch.cuda.current_stream().synchronize()
                with pytest.raises(ferry.PeerMissing) as raised:
                    exchange.check()
                assert (raised.value.rank, raised.value.operation) == (1, "dispatch")
            world.barrier()

    GPUS.run(2, body)


def test_encoded_tokens_and_tensors_that_require_gradients():
    def body(world):
        rank = world.rank
        tokens, ids, weights = inputs_on(world)
        payload, scales = ferry.formats.encode("fp8_block128", LAYER.tokens[rank])
        codes = devices.on_gpu(payload, world.device).view(torch.float8_e4m3fn)
        with ferry.Exchange(world, **SHAPE, format="fp8_block128") as exchange:
            plain = exchange.dispatch(tokens.requires_grad_(), ids, weights).values()
            given = exchange.dispatch(codes, ids, weights, token_scales=devices.on_gpu(scales, world.device)).values()
            assert (plain == given).all()

    GPUS.run(2, body)


def test_an_input_scale_in_memory_of_the_gpu():
    def body(world):
        tokens, ids, weights = inputs_on(world)
        scale = devices.on_gpu(np.array([37.5], np.float32), world.device)
        with ferry.Exchange(world, **SHAPE, format="nvfp4") as exchange:
            arrivals = exchange.dispatch(tokens, ids, weights, input_scale=scale)
            return arrivals.values(input_scale=37.5)

    def on_cpu(world):
        rank = world.rank
        with ferry.Exchange(world, **SHAPE, format="nvfp4") as exchange:
            scale = np.float32(37.5) if rank else 37.5
            return exchange.dispatch(LAYER.tokens[rank], LAYER.ids[rank], LAYER.weights[rank],
                                     input_scale=scale).values(input_scale=37.5)

    for got, want in zip(GPUS.run(2, body), ferry.run_ranks(2, on_cpu)):
        assert (got == want).all()


def test_a_pair_in_a_graph():
    lock = threading.Lock()
    ranks = min(2, ferry.cuda_devices())  # capturing waits for the whole device
    layer = make_layer(ranks, 8, 2, 256, [4, 6][:ranks])

    def body(world):
        rank, device = world.rank, world.device
        tokens, ids, weights = inputs_on(world, layer)
        with ferry.Exchange(world, **SHAPE) as exchange:
            outputs = exchange.allocate_outputs(like=tokens)
            first = exchange.dispatch(tokens, ids, weights, outputs=outputs)
            rows = devices.on_gpu(np.zeros((outputs["payload"].shape[0], 256), np.float32), device)
            results = results_of(first, rank, layer)
            rows[:results.shape[0]].copy_(results)
            sums = exchange.combine(rows)
            torch.cuda.current_stream().synchronize()
            world.barrier()
            graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
            with lock:
                with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
                    exchange.dispatch(tokens, ids, weights, outputs=outputs)
                    exchange.combine(rows, out=sums)
            world.barrier()
            for _ in range(3):
                sums.zero_()
                graph.replay()
                assert_sums(sums, rank, layer)
            exchange.check()
            world.barrier()

    GPUS.run(ranks, body)


def test_swiglu_as_on_the_cpu():
    random = np.random.default_rng(2)
    rows = random.standard_normal((6, 256)).astype(np.float32)
    offsets = np.array([0, 2, 5], np.uint32)
    for name in ("bf16", "mxfp8", "fp8_block128"):
        payload, scales = ferry.swiglu(devices.on_gpu(rows, "cuda:0"), devices.on_gpu(offsets.view(np.int32), "cuda:0"),
                                       format=name)
        want, want_scales = ferry.swiglu(rows, offsets, format=name)
        assert str(payload.device) == "cuda:0" and not devices.on_host(payload)[5].view(np.uint8).any()
        got = devices.on_host(payload)
        if name == "bf16":
            floats = [(bits.view(np.uint16).astype(np.uint32) << 16).view(np.float32) for bits in (got, want)]
            assert np.allclose(*floats, rtol=2**-7, atol=1e-6)
        else:
            assert (got != want).mean() < 0.01 and got.shape == want.shape
            assert (devices.on_host(scales) == want_scales).mean() > 0.99
    refuses(lambda: ferry.swiglu(devices.on_gpu(rows, "cuda:0"), offsets), ValueError, "row_offsets")


def test_memory_of_the_callers_own():
    def body(world):
        made = []

        def allocate(name, shape, dtype):
            made.append((name, dtype))
            return devices.on_gpu(np.zeros(shape, {"bf16": "u2", "f32": "f4", "u8": "u1", "u32": "u4", "i32": "i4"}[dtype]),
                                  world.device)

        with ferry.Exchange(world, **SHAPE, allocate=allocate) as exchange:
            arrivals = exchange.dispatch(*inputs_on(world))
            assert_sums(exchange.combine(results_of(arrivals, world.rank)), world.rank)
        assert ("payload", "bf16") in made and ("sums", "f32") in made

    GPUS.run(2, body)


def test_ranks_that_are_staged_take_host_memory():
    def body(world):
        rank = world.rank
        assert world.device == "cpu"
        with ferry.Exchange(world, **SHAPE) as exchange:
            arrivals = exchange.dispatch(LAYER.tokens[rank], LAYER.ids[rank], LAYER.weights[rank])
            values = arrivals.values()
            for group, expert in enumerate(LAYER.experts_of(rank)):
                values[arrivals.rows_of(group)] *= expert + 1
            return exchange.combine(values)

    worlds = ferry.cuda_worlds(2, devices=[0, ferry.cuda_devices() - 1], staged=True)
    for rank, sums in enumerate(ferry.run_worlds(worlds, body)):
        want = LAYER.sums(rank, lambda expert: expert + 1)
        assert np.abs(sums - want).max() <= 0.02 * np.abs(want).max()


def test_arrays_of_cupy():
    cupy = pytest.importorskip("cupy")

    def body(world):
        rank = world.rank
        with cupy.cuda.Device(world.rank), cupy.cuda.Stream(non_blocking=True) as stream:
            tokens, ids, weights = (cupy.asarray(of[rank]) for of in (LAYER.tokens, LAYER.ids, LAYER.weights))
            cupy.empty(1 << 26, "u1")  # so that nothing is allocated while the kernels of the other rank wait
            with ferry.Exchange(world, **SHAPE) as exchange:
                stream.synchronize()
                world.barrier()
                arrivals = exchange.dispatch(tokens, ids, weights)
                values = arrivals.values()
                for group, expert in enumerate(LAYER.experts_of(rank)):
                    values[arrivals.rows_of(group)] *= expert + 1
                rows = cupy.asarray(values)  # takes pinned memory, which waits for the kernels of the other rank
                stream.synchronize()
                world.barrier()
                sums = exchange.combine(rows)
                assert isinstance(sums, cupy.ndarray) and isinstance(arrivals.payload, cupy.ndarray)
                want = LAYER.sums(rank, lambda expert: expert + 1)
                assert np.abs(sums.get() - want).max() <= 0.02 * np.abs(want).max()

    if ferry.cuda_devices() < 2:
        pytest.skip("takes two GPUs")
    ferry.run_ranks(2, body, device="cuda")
