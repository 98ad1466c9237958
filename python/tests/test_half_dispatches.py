"""A dispatch whose second half cannot be done, since there is no memory for its rows."""

import numpy as np
import pytest

import ferry
from oracle import make_layer

LAYER = make_layer(2, 4, 2, 64, [3, 5])
ORDERS = ("by_expert", "by_source", "padded", "in_place")


class Memory:
    """`allocate` of an exchange: numpy, unless it is told to fail, or to give something else."""

    def __init__(self):
        self.fails = False

    def __call__(self, name, shape, dtype):
        if self.fails and name == "src_info":  # the payload is there already
            raise MemoryError(name)
        kinds = {"bf16": np.uint16, "u8": np.uint8, "u32": np.uint32, "i32": np.int32, "f32": np.float32}
        return np.empty(shape, kinds[dtype])


def given(rank):
    return LAYER.tokens[rank], LAYER.ids[rank], LAYER.weights[rank]


def open_exchange(world, **options):
    return ferry.Exchange(world, experts=LAYER.experts, top_k=LAYER.top_k, max_tokens=5, hidden=LAYER.hidden,
                                 row_orders=ORDERS, **options)


def assert_round(exchange, rank):
    arrivals = exchange.dispatch(*given(rank))
    sums = exchange.combine(LAYER.results_of(rank, arrivals))
    want = LAYER.sums(rank, lambda expert: expert + 1)
    np.testing.assert_allclose(np.asarray(sums, np.float32), want, rtol=2.0**-6, atol=2.0**-6 * np.abs(want).max())


@pytest.mark.parametrize("order", ORDERS[:3])
def test_an_error_between_the_halves_ends_the_dispatch(order):
    def body(world):
        memory, rank = Memory(), world.rank
        with open_exchange(world, allocate=memory) as exchange:
            assert_round(exchange, rank)
            memory.fails = rank == 0
            if rank == 0:
                with pytest.raises(MemoryError, match="src_info"):
                    exchange.dispatch(*given(rank), row_order=order)
                memory.fails = False
                with pytest.raises(ferry.OutOfOrder):  # it is no longer half done
                    exchange.dispatch_wait()
            else:
                exchange.dispatch(*given(rank), row_order=order)
            assert_round(exchange, rank)

    ferry.run_ranks(2, body)


@pytest.mark.parametrize("order", ("by_expert", "padded"))
@pytest.mark.parametrize("has_outputs", (False, True))
def test_without_any_memory_the_next_dispatch_ends_it(order, has_outputs):
    def body(world):
        rank = world.rank
        with open_exchange(world) as exchange:
            outputs = exchange.allocate_outputs(row_order=order) if has_outputs else None
            usual = exchange._empty

            def none(*_):
                raise MemoryError("none")

            exchange._empty = none if rank == 0 else usual
            for _ in range(1 + (rank == 0)):  # rank 0 asks again before there is memory: the same error
                try:
                    exchange.dispatch(*given(rank))
                    assert rank == 1
                except MemoryError:
                    assert rank == 0
            exchange._empty = usual
            exchange.dispatch(*given(rank), row_order=order, outputs=outputs)
            exchange.dispatch_async(*given(rank))
            with pytest.raises(ferry.OutOfOrder):  # the caller's own half is the caller's
                exchange.dispatch(*given(rank))
            exchange.dispatch_wait()
            assert_round(exchange, rank)

    ferry.run_ranks(2, body)


def test_a_wait_for_a_rank_that_is_gone_is_not_repeated():
    def body(world):
        with open_exchange(world, deadline=0.3) as exchange:
            if world.rank == 1:
                return
            for _ in range(2):
                with pytest.raises(ferry.PeerMissing):
                    exchange.dispatch(*given(0))

    ferry.run_ranks(2, body)


def test_a_dispatch_without_ids_makes_its_outputs():
    """They have no ids. What it cannot fill, as where only a handle knows of that, leaves nothing half done."""
    def body(world):
        tokens = LAYER.tokens[world.rank]
        in_rank = np.ones((len(tokens), 2), np.uint8)
        routing = dict(in_rank=in_rank, expert_counts=np.full(4, len(tokens), np.int32), row_order="by_source")
        with open_exchange(world) as exchange:
            for room in ({}, {"row_capacity": 8}):
                arrivals = exchange.dispatch(tokens, **routing, **room, leave_handle=True)
                assert arrivals.rows == 8 and arrivals.row_topk_ids is None
                sums = exchange.combine(arrivals.values())
                np.testing.assert_allclose(np.asarray(sums, np.float32), 2 * tokens, rtol=2.0**-7)
            exchange.dispatch_async(tokens, **routing)
            assert exchange.dispatch_wait().row_topk_ids is None
            for room in ({}, {"row_capacity": 8}):
                again = exchange.dispatch(3 * tokens, handle=arrivals.handle, **room)
                assert (again.values() == 3 * arrivals.values()).all() and again.row_topk_ids is None
            with pytest.raises(ferry.InvalidArgument, match="row_topk_ids is given; .* with in_rank"):
                exchange.dispatch(tokens, handle=arrivals.handle.data, row_order="by_source")  # bytes do not say it
            assert_round(exchange, world.rank)

    ferry.run_ranks(2, body)


@pytest.mark.parametrize("more, why", [
    ({"row_order": "in_place", "zero_padding": True}, "zero_padding is True"),
    ({"row_order": "padded", "expert_stride": 3, "overflow": "expected", "leave_handle": True}, "stride of 10 or more"),
])
def test_what_no_outputs_can_fill_is_refused_before_tokens_leave(more, why):
    def body(world):
        with open_exchange(world) as exchange:
            with pytest.raises(ferry.InvalidArgument, match=why) as refused:
                exchange.dispatch(*given(world.rank), **more)
            assert "travelled" not in str(refused.value)
            assert_round(exchange, world.rank)

    ferry.run_ranks(2, body)


def test_handles_that_do_not_fit_are_refused_before_tokens_leave():
    """Of another alignment; and the bare bytes of a handle, which do not say at which stride its padded rows lie."""
    def body(world):
        rank, tokens = world.rank, LAYER.tokens[world.rank]
        with open_exchange(world) as exchange, open_exchange(world, expert_alignment=4) as aligned:
            handle = exchange.dispatch(*given(rank), leave_handle=True).handle
            with pytest.raises(ferry.InvalidArgument, match="expert_alignment 1, or less") as refused:
                aligned.dispatch(tokens, handle=handle)
            assert "travelled" not in str(refused.value)
            assert_round(aligned, rank)
            wide = exchange.dispatch(*given(rank), row_order="padded", expert_stride=20, leave_handle=True)
            for outputs in (None, exchange.allocate_outputs(row_order="padded")):
                with pytest.raises(ferry.InvalidArgument, match="20 rows apart; expert_stride is 10. Say 20") as refused:
                    exchange.dispatch(tokens, handle=wide.handle.data, row_order="padded", outputs=outputs)
                assert "travelled" not in str(refused.value)
            again = exchange.dispatch(tokens, handle=wide.handle.data, row_order="padded", expert_stride=20)
            for group in range(2):
                assert (again.values()[again.rows_of(group)] == wide.values()[wide.rows_of(group)]).all()
            assert_round(exchange, rank)

    ferry.run_ranks(2, body)


def test_the_shared_expert_needs_room_for_the_tokens_of_its_call():
    def body(world):
        with ferry.Exchange(world, experts=4, top_k=2, max_tokens=64, hidden=64, fused_shared_expert=True) as exchange:
            for n in (1, 0, 3):
                tokens, ids = np.ones((n, 64), np.float32), np.tile(np.array([0, 1], np.int32), (n, 1))
                weights = np.full((n, 2), 0.5, np.float32)
                arrivals = exchange.dispatch(tokens, ids, weights, overflow="expected")
                assert arrivals.rows == n + (4 * n if world.rank == 0 else 0)
                sums = exchange.combine(arrivals.values())
                np.testing.assert_array_equal(np.asarray(sums, np.float32), np.full((n, 64), 2.0))

    ferry.run_ranks(2, body)
