"""Handles of as many bytes as what came takes."""

import numpy as np
import pytest

import devices
import ferry
from oracle import make_layer

LAYER = make_layer(3, 8, 2, 64, [4, 0, 6])
SHAPE = dict(experts=8, top_k=2, max_tokens=40, hidden=64)


def open_exchange(world, **options):
    return devices.open_exchange(world, **SHAPE, short_handles=True, **options)


def inputs_of(rank):
    return LAYER.tokens[rank], LAYER.ids[rank], LAYER.weights[rank]


def assert_sums(sums, rank):
    want = LAYER.sums(rank, lambda expert: expert + 1)
    assert np.abs(np.asarray(sums, np.float64) - want).max(initial=0) <= 0.02 * np.abs(want).max(initial=1)


def bytes_of(handle):
    return int(np.prod(handle.data.shape))


@pytest.mark.parametrize("order", ["by_expert", "padded", "by_source"])
def test_dispatches_leave_what_came_takes(run, order):
    def body(world):
        rank = world.rank
        with open_exchange(world, row_orders=["by_expert", "padded", "by_source"]) as exchange:
            first = exchange.dispatch(*inputs_of(rank), row_order=order, leave_handle=True)
            assert bytes_of(first.handle) < exchange.layout.handle_bytes / 3
            rows = LAYER.results_of(rank, first) if order != "by_source" else None
            exchange.dispatch(LAYER.tokens[rank][:0], LAYER.ids[rank][:0])
            again = exchange.dispatch(LAYER.tokens[rank] * 2, handle=first.handle, leave_handle=True)
            has = first.has_token
            assert (again.has_token == has).all() and (again.values()[has] == 2 * first.values()[has]).all()
            assert bytes_of(again.handle) == bytes_of(first.handle)
            for handle in (first.handle, again.handle) if rows is not None else ():
                assert_sums(exchange.combine(rows, handle=handle), rank)

    run(3, body)


def test_rows_that_have_more_room_leave_whole_ones(run):
    def body(world):
        rank = world.rank
        with open_exchange(world) as exchange:
            layout = exchange.layout
            first = exchange.dispatch(*inputs_of(rank), row_capacity=layout.min_row_capacity, leave_handle=True)
            assert bytes_of(first.handle) == layout.handle_bytes
            exchange.dispatch_async(*inputs_of(rank))
            counts = exchange.wait_for_counts()
            outputs = exchange.allocate_outputs(counts, extra="handle")
            taken = layout.short_handle_bytes(len(LAYER.tokens[rank]), counts)
            assert outputs["handle"].shape == (taken,) and outputs["src_info"].shape == (counts.rows, 2)
            assert taken <= layout.short_handle_bytes(len(LAYER.tokens[rank]), messages=10, rows=20)
            second = exchange.dispatch_wait(outputs)
            rows = LAYER.results_of(rank, second)
            for handle in (second.handle, first.handle):
                assert_sums(exchange.combine(rows, handle=handle), rank)

    run(3, body)


def test_too_few_bytes_are_told_of():
    def body(world):
        rank = world.rank
        with open_exchange(world) as exchange:
            outputs = exchange.allocate_outputs(extra="handle")
            outputs["handle"] = outputs["handle"][:exchange.layout.short_handle_bytes(0, messages=0, rows=0)]
            if rank == 0:
                with pytest.raises(ferry.InvalidArgument, match="a short handle of this dispatch takes"):
                    exchange.dispatch(*inputs_of(rank), outputs=outputs)
            else:
                outputs.pop("handle")
                exchange.dispatch(*inputs_of(rank), outputs=outputs)
            with pytest.raises(ferry.InvalidArgument, match="it must be u8"):
                with_whole = devices.open_exchange(world, **SHAPE)
                with_whole.dispatch(LAYER.tokens[rank], handle=np.zeros(512, np.uint8))

    ferry.run_ranks(3, body)


def test_sizes_take_numbers():
    layout = ferry.exchange_layout(ranks=2, **SHAPE)
    with pytest.raises(ferry.InvalidArgument, match="each must be 0 or more"):
        layout.short_handle_bytes(-1, messages=0, rows=0)
    with pytest.raises(TypeError, match="tokens"):
        layout.short_handle_bytes("four", messages=0, rows=0)
