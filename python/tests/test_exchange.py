"""Dispatch and combine, beside the oracle."""

import numpy as np
import pytest

import devices
import ferry
from oracle import make_layer

SHAPES = {
    "smallest": (make_layer(1, 1, 1, 32, [1], missing=0), 1),
    "uneven": (make_layer(4, 10, 2, 64, [5, 0, 3, 7]), 8),
    "nobody": (make_layer(3, 7, 2, 32, [0, 0, 0]), 4),
    "none": (make_layer(2, 4, 2, 32, [3, 4], missing=1.0), 4),
    "one_rank": (make_layer(4, 8, 2, 64, [6, 6, 6, 6], missing=0, only=[4, 5]), 6),
    "top_1": (make_layer(3, 5, 1, 2880, [4, 2, 9]), 9),
    "top_22": (make_layer(3, 64, 22, 64, [3, 8, 1]), 8),
    "wide": (make_layer(2, 6, 3, 7168, [3, 5]), 5),
}


@pytest.fixture(params=SHAPES, name="case")
def _case(request):
    return SHAPES[request.param]


def open_exchange(world, case, **options):
    layer, max_tokens = case
    return devices.open_exchange(world, experts=layer.experts, top_k=layer.top_k, max_tokens=max_tokens,
                                 hidden=layer.hidden, **options)


def assert_sums(sums, layer, rank):
    want = layer.sums(rank, lambda expert: expert + 1)
    # A partial sum of bf16 is off by 2^-9 of itself; partial sums may cancel.
    room = np.maximum(np.abs(want), np.abs(want).max(initial=1.0)) * layer.ranks * 2.0**-8
    assert sums.shape == want.shape and (np.abs(np.asarray(sums, np.float64) - want) <= room).all()


@pytest.mark.parametrize("ids_dtype", [np.int32, np.int64])
def test_rows_lie_by_expert_and_sums_come_home(case, ids_dtype, run):
    layer, _ = case

    def body(world):
        rank = world.rank
        with open_exchange(world, case) as exchange:
            arrivals = exchange.dispatch(layer.tokens[rank], layer.ids[rank].astype(ids_dtype), layer.weights[rank])
            rows = layer.rows_of(rank)
            has = np.flatnonzero(arrivals.has_token)
            assert len(has) == len(rows)
            values = arrivals.values()
            for row, (expert, source, token, k) in zip(has, rows):
                group = layer.experts_of(rank).index(expert)
                assert arrivals.row_offsets[group] <= row < arrivals.row_offsets[group + 1]
                assert tuple(arrivals.src_info[row]) == (token, k)
                assert (values[row] == layer.tokens[source][token]).all()
            assert_sums(exchange.combine(layer.results_of(rank, arrivals)), layer, rank)

    run(layer.ranks, body)


def test_exact_gives_the_rows_themselves_and_their_sums(case, run):
    layer, _ = case

    def body(world):
        rank = world.rank
        with open_exchange(world, case, reduction="exact", result_format="f32") as exchange:
            for unreduced in (False, True):
                arrivals = exchange.dispatch(layer.tokens[rank], layer.ids[rank])
                rows = layer.results_of(rank, arrivals)
                if not unreduced:
                    assert_sums(exchange.combine(rows, topk_weights=layer.weights[rank]), layer, rank)
                    continue
                got = exchange.combine(rows, unreduced=True)
                factors = np.where(layer.ids[rank] >= 0, layer.ids[rank] + 1, 0)
                assert (got == layer.tokens[rank][:, None, :] * factors[:, :, None]).all()

    run(layer.ranks, body)


def test_combines_that_choose_their_reduction(case, run):
    layer, _ = case

    def body(world):
        rank = world.rank
        with open_exchange(world, case, reduction="either", result_format="f32") as exchange:
            arrivals = exchange.dispatch(layer.tokens[rank], layer.ids[rank], layer.weights[rank], leave_handle=True)
            rows = layer.results_of(rank, arrivals)
            for _ in range(2):
                assert_sums(exchange.combine(rows, handle=arrivals.handle), layer, rank)
                assert_sums(exchange.combine(rows, handle=arrivals.handle, reduction="exact",
                                             topk_weights=layer.weights[rank]), layer, rank)
            got = exchange.combine(rows, handle=arrivals.handle, reduction="exact", unreduced=True)
            factors = np.where(layer.ids[rank] >= 0, layer.ids[rank] + 1, 0)
            assert (got == layer.tokens[rank][:, None, :] * factors[:, :, None]).all()
            with pytest.raises(ferry.InvalidArgument, match="reduction is 'either'; it must be one of by_rank, exact"):
                exchange.combine(rows, handle=arrivals.handle, reduction="either")
        with open_exchange(world, case) as exchange:
            arrivals = exchange.dispatch(layer.tokens[rank], layer.ids[rank], layer.weights[rank])
            with pytest.raises(ferry.InvalidArgument, match="reduction is exact; this exchange is by_rank"):
                exchange.combine(layer.results_of(rank, arrivals), reduction="exact")

    run(layer.ranks, body)


def test_rows_by_source(case, run):
    layer, _ = case

    def body(world):
        rank = world.rank
        with open_exchange(world, case, row_orders=["by_source"]) as exchange:
            arrivals = exchange.dispatch(layer.tokens[rank], layer.ids[rank], layer.weights[rank],
                                         row_order="by_source")
            messages = layer.messages_of(rank)
            assert arrivals.rows == len(messages)
            values, mine = arrivals.values(), layer.experts_of(rank)
            results = np.zeros_like(values)
            for row, (source, token) in enumerate(messages):
                assert (values[row] == layer.tokens[source][token]).all()
                assert tuple(arrivals.src_info[row]) == (token, source)
                local = [mine.index(expert) if expert in mine else -1 for expert in layer.ids[source][token]]
                assert arrivals.row_topk_ids[row].tolist() == local
                for expert, weight in zip(local, arrivals.row_topk_weights[row]):
                    results[row] += 0 if expert < 0 else weight * (mine[expert] + 1) * values[row]
            assert_sums(exchange.combine(results, apply_weights=False), layer, rank)

    run(layer.ranks, body)


@pytest.mark.parametrize("order", ["by_expert", "by_source", "padded"])
def test_outputs_that_are_left_out(case, order, run):
    """A dispatch writes what is among its outputs, and Arrivals say what they lack."""
    layer, _ = case

    def body(world):
        rank = world.rank
        given = (layer.tokens[rank], layer.ids[rank], layer.weights[rank])
        with open_exchange(world, case, row_orders=["by_expert", "by_source", "padded"]) as exchange:
            whole = exchange.dispatch(*given, row_order=order, row_capacity=exchange.layout.least_rows(order))
            has, payload, outputs = whole.has_token, whole.payload.copy(), dict(whole.arrays)
            sums = exchange.combine(payload)
            for name in ("src_info", "expert_ids", "row_offsets"):
                outputs.pop(name, None)
                arrivals = exchange.dispatch(*given, row_order=order, outputs=outputs)
                assert getattr(arrivals, name) is None and name not in repr(arrivals)
                assert (arrivals.payload[has] == payload[has]).all()
                assert order != "padded" or (arrivals.has_token == has).all()
                assert (exchange.combine(payload) == sums).all()
            if order != "by_source":
                with pytest.raises(ferry.InvalidArgument, match="row_offsets"):
                    arrivals.rows
                with pytest.raises(ferry.InvalidArgument, match=r"expert_ids is i32 \[\]; its shape"):
                    exchange.dispatch(*given, row_order=order,
                                      outputs={**outputs, "expert_ids": np.zeros((), np.int32)})
            if order == "by_expert":
                outputs["row_offsets"] = whole.arrays["row_offsets"]
                arrivals = exchange.dispatch(*given, outputs=outputs)
                with pytest.raises(ferry.InvalidArgument, match="src_info"):
                    arrivals.has_token
                exchange.combine(payload)

    run(layer.ranks, body)


@pytest.mark.parametrize("name", ["fp8_block128", "fp8_block128_ue8m0"])
def test_padded_rows(case, name, run):
    layer, _ = case

    def body(world):
        rank = world.rank
        with open_exchange(world, case, format=name) as exchange:
            arrivals = exchange.dispatch(layer.tokens[rank], layer.ids[rank], layer.weights[rank], row_order="padded")
            assert arrivals.scales.ndim == (3 if name == "fp8_block128" else 2)  # transposed for each expert
            stride = exchange.layout.expert_rows
            assert arrivals.row_offsets.tolist() == [stride * group for group in range(exchange.layout.groups + 1)]
            values = arrivals.values()
            for group, expert in enumerate(layer.experts_of(rank)):
                came = [row for row in layer.rows_of(rank) if row[0] == expert]
                assert arrivals.counts[group] == len(came)
                for place, (_, source, token, _) in enumerate(came):
                    one = layer.tokens[source][token:token + 1]
                    want = ferry.formats.decode(name, *ferry.formats.encode(name, one), layer.hidden)
                    assert (values[group * stride + place] == want).all()
            sums = exchange.combine(layer.results_of(rank, arrivals))
            if name == "fp8_block128_ue8m0":  # E4M3 holds whole numbers up to 8 where the scale is a power of two
                assert_sums(sums, layer, rank)

    run(layer.ranks, body)


def test_rows_in_place(case, run):
    layer, _ = case

    def body(world):
        rank = world.rank
        with open_exchange(world, case) as exchange:
            arrivals = exchange.dispatch(layer.tokens[rank], layer.ids[rank], row_order="in_place")
            slots = exchange.arrival_slots()["payload"].reshape(-1, layer.hidden).view(np.uint16)
            has = np.flatnonzero(arrivals.has_token)
            for row, (_, source, token, _) in zip(has, layer.rows_of(rank)):
                bits = slots[arrivals.gather[row]].astype(np.uint32) << 16
                assert (bits.view(np.float32) == layer.tokens[source][token]).all()
        with open_exchange(world, case, message_copies=4) as exchange:
            first, *_ = [exchange.dispatch(layer.tokens[rank] * (i + 1), layer.ids[rank], row_order="in_place")
                         for i in range(3)]
            slots = exchange.arrival_slots()["payload"]
            assert slots.shape[0] == 4
            for row, (_, source, token, _) in zip(np.flatnonzero(first.has_token), layer.rows_of(rank)):
                bits = slots.reshape(-1, layer.hidden).view(np.uint16)[first.gather[row]].astype(np.uint32) << 16
                assert (bits.view(np.float32) == layer.tokens[source][token]).all()

    run(layer.ranks, body)


@pytest.mark.parametrize("name", ferry.formats.names())
def test_every_format_carries_what_encode_makes(name, run):
    layer = make_layer(2, 4, 2, 256, [5, 3])

    def body(world):
        rank = world.rank
        with open_exchange(world, (layer, 5), format=name) as exchange:
            arrivals = exchange.dispatch(layer.tokens[rank], layer.ids[rank], layer.weights[rank])
            values = arrivals.values()
            for row, (_, source, token, _) in zip(np.flatnonzero(arrivals.has_token), layer.rows_of(rank)):
                one = layer.tokens[source][token:token + 1]
                want = ferry.formats.decode(name, *ferry.formats.encode(name, one), layer.hidden)
                assert (values[row] == want[0]).all()
            return exchange.combine(layer.results_of(rank, arrivals))

    assert all(np.isfinite(sums).all() for sums in run(2, body))


def test_handles_replay_a_dispatch_and_repeat_a_combine(run):
    layer = make_layer(3, 8, 2, 64, [4, 0, 6])

    def body(world):
        rank = world.rank
        with open_exchange(world, (layer, 6)) as exchange:
            first = exchange.dispatch(layer.tokens[rank], layer.ids[rank], layer.weights[rank], leave_handle=True)
            rows = layer.results_of(rank, first)
            exchange.dispatch(layer.tokens[rank][:0], layer.ids[rank][:0])
            for _ in range(2):
                assert_sums(exchange.combine(rows, handle=first.handle), layer, rank)
            again = exchange.dispatch(layer.tokens[rank] * 2, handle=first.handle)
            has = first.has_token
            assert (again.has_token == has).all() and (again.values()[has] == 2 * first.values()[has]).all()
            sums = exchange.combine(rows, handle=first.handle)
            assert_sums(sums, layer, rank)

    run(layer.ranks, body)


def test_split_calls_and_memory_of_the_callers(run):
    layer = make_layer(2, 4, 2, 64, [3, 4])

    def body(world):
        rank = world.rank
        made = []

        def allocate(name, shape, dtype):
            made.append(name)
            memory = np.full(shape, 0, {"bf16": np.uint16, "u8": np.uint8, "u32": np.uint32, "i32": np.int32,
                                        "f32": np.float32, "i64": np.int64}[dtype])
            return memory if world.device == "cpu" else devices.on_gpu(memory, world.device)

        with open_exchange(world, (layer, 4), allocate=allocate) as exchange:
            exchange.dispatch_async(layer.tokens[rank], layer.ids[rank], layer.weights[rank])
            counts = exchange.wait_for_counts()
            arrivals = exchange.dispatch_wait(extra=["counts", "row_sources", "waited_ns"])
            assert counts.by_expert == arrivals.counts.tolist() and counts.rows == arrivals.rows
            sources = [source for _, source, _, _ in layer.rows_of(rank)]
            assert arrivals.row_sources[arrivals.has_token].tolist() == sources
            exchange.combine_async(layer.results_of(rank, arrivals))
            waited = np.full(world.size, 7)
            sums = exchange.combine_wait(out=np.empty((len(layer.tokens[rank]), 64), np.float32), waited_ns=waited)
            assert_sums(sums, layer, rank)
            assert (waited >= 7).all()
            first = exchange.dispatch(layer.tokens[rank], layer.ids[rank],
                                      row_capacity=exchange.layout.min_row_capacity)  # GPUs take no less unasked
            again = exchange.dispatch(layer.tokens[rank], layer.ids[rank], outputs=first.arrays)
            assert again.arrays["payload"] is first.arrays["payload"] and "payload" in made
            assert again.rows == first.rows  # a GPU has counted the dispatch when it has ended
            assert exchange.stats()["dispatches"] == 3

    run(2, body)


def test_bf16_in_every_guise(run):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    layer = make_layer(2, 4, 2, 64, [3, 4])

    def body(world):
        rank = world.rank
        narrow = layer.tokens[rank].astype(ml_dtypes.bfloat16)
        with open_exchange(world, (layer, 4)) as exchange:
            for tokens in (narrow, narrow.view(np.uint16), layer.tokens[rank].astype(np.float16)):
                arrivals = exchange.dispatch(tokens, layer.ids[rank], layer.weights[rank])
                assert arrivals.payload.dtype == ml_dtypes.bfloat16
                rows = layer.results_of(rank, arrivals)
                sums = exchange.combine(rows, dtype=ml_dtypes.bfloat16)
                assert sums.dtype == ml_dtypes.bfloat16
                assert_sums(sums, layer, rank)

    run(2, body)


def test_names_of_outputs_may_come_one_by_one(run):
    layer = make_layer(2, 4, 2, 64, [3, 4])

    def body(world):
        with open_exchange(world, (layer, 4)) as exchange:
            exchange.dispatch_async(layer.tokens[world.rank], layer.ids[world.rank], layer.weights[world.rank])
            arrivals = exchange.dispatch_wait(extra=(name for name in ["handle", "counts"]))
            assert arrivals.handle is not None and arrivals.counts is not None

    run(2, body)


def test_a_call_that_is_refused_changes_nothing_that_is_half_done():
    layer = make_layer(2, 4, 2, 64, [3, 4])

    def body(world):
        rank = world.rank
        with open_exchange(world, (layer, 4), row_orders=["by_expert", "by_source"]) as exchange:
            exchange.dispatch_async(layer.tokens[rank], layer.ids[rank], layer.weights[rank], row_order="by_source")
            with pytest.raises(TypeError):
                exchange.dispatch(layer.tokens[rank].astype(np.int8), layer.ids[rank],
                                  outputs=exchange.allocate_outputs())
            assert exchange.dispatch_wait().row_topk_ids is not None

    ferry.run_ranks(2, body)


def test_what_outputs_cannot_be_is_refused_before_tokens_leave():
    layer = make_layer(2, 4, 2, 64, [3, 4])

    def body(world):
        given = (layer.tokens[world.rank], layer.ids[world.rank], layer.weights[world.rank])
        with open_exchange(world, (layer, 4)) as exchange:
            if world.rank == 0:
                with pytest.raises(ferry.InvalidArgument, match="extra names row_weight"):
                    exchange.dispatch(*given, extra=["row_weight"])
                with pytest.raises(TypeError, match="zero_padding is 1"):
                    exchange.dispatch(*given, zero_padding=1)
            assert exchange.dispatch(*given).rows >= 0

    ferry.run_ranks(2, body)
