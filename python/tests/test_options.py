"""What an exchange can be told besides: each option once, beside the oracle."""

import gc
import weakref

import numpy as np
import pytest

import devices
import ferry
from oracle import make_layer

LAYER = make_layer(3, 8, 2, 256, [4, 0, 6])


def open_exchange(world, **options):
    return devices.open_exchange(world, experts=8, top_k=2, max_tokens=6, hidden=256, **options)


def sums_of(rank):
    return LAYER.sums(rank, lambda expert: expert + 1)


def close(got, want, room=0.02):
    return np.abs(np.asarray(got, np.float64) - want).max(initial=0) <= room * np.abs(want).max(initial=1)


def inputs_of(rank):
    return LAYER.tokens[rank], LAYER.ids[rank], LAYER.weights[rank]


class OnlyDLPack:
    """What other frameworks have: DLPack, a shape and a type, and no buffer of Python's."""

    def __init__(self, array):
        self._array, self.shape, self.dtype = array, array.shape, array.dtype

    def __dlpack__(self, **more):
        return self._array.__dlpack__(**more)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


def test_anything_with_dlpack():
    def body(world):
        rank = world.rank
        with open_exchange(world, allocate=lambda name, shape, dtype: OnlyDLPack(
                np.empty(shape, {"bf16": "u2", "f32": "f4", "u8": "u1"}.get(dtype, dtype.replace("32", "4"))))) as exchange:
            arrivals = exchange.dispatch(*(OnlyDLPack(array) for array in inputs_of(rank)), row_capacity=32,
                                         outputs=None)
            rows = OnlyDLPack(np.zeros((32, 256), np.float32))
            sums = exchange.combine(rows)
            assert isinstance(arrivals.payload, OnlyDLPack) and isinstance(sums, OnlyDLPack)
            assert not np.from_dlpack(sums).any()

    ferry.run_ranks(3, body)


def test_results_may_travel_in_every_format(run):
    def body(world):
        rank = world.rank
        for name in ferry.formats.result_names():
            with open_exchange(world, result_format=name) as exchange:
                arrivals = exchange.dispatch(*inputs_of(rank))
                assert close(exchange.combine(LAYER.results_of(rank, arrivals)), sums_of(rank), 0.35 if "4" in name else 0.1), name

    run(3, body)


def test_bias_and_late_and_returned_weights(run):
    def body(world):
        rank = world.rank
        tokens, ids, weights = inputs_of(rank)
        devices.need(world, "late_weights", "returned_weights")
        with open_exchange(world, late_weights=True, returns_weights=True) as exchange:
            arrivals = exchange.dispatch(tokens, ids)
            home = np.full(ids.shape, -1, np.float32)
            per_row = np.where(arrivals.has_token, arrivals.src_info[:, 1] + 1, 0).astype(np.float32)
            sums = exchange.combine(LAYER.results_of(rank, arrivals), topk_weights=weights, bias=[tokens, tokens],
                                    row_topk_weights=per_row, topk_weights_out=home)
            assert close(sums, sums_of(rank) + 2 * tokens)
            assert (home == np.where(ids >= 0, np.arange(2) + 1, 0)).all()

    run(3, body)


@pytest.mark.parametrize("options", [dict(format="mxfp8", tiled_scales=True), dict(format="nvfp4", dynamic_scales=True)])
def test_scales_in_tiles_and_of_each_token(options, run):
    def body(world):
        rank = world.rank
        if "dynamic_scales" in options:
            devices.need(world, "dynamic_scales")
        with open_exchange(world, **options) as exchange:
            arrivals = exchange.dispatch(*inputs_of(rank))
            values, has = arrivals.values(), np.flatnonzero(arrivals.has_token)
            assert arrivals.scales.ndim == 5 and len(has) == len(LAYER.rows_of(rank))
            for row, (_, source, token, _) in zip(has, LAYER.rows_of(rank)):
                assert close(values[row], LAYER.tokens[source][token], 0.0 if options["format"] == "mxfp8" else 0.15)

    run(3, body)


@pytest.mark.parametrize("row_order", ["by_expert", "padded"])
def test_scales_of_each_token_are_bf16_where_the_array_given_is(row_order):
    def body(world):
        with open_exchange(world, format="nvfp4", dynamic_scales=True) as exchange:
            wide = exchange.dispatch(*inputs_of(world.rank), row_order=row_order)
            outputs = exchange.allocate_outputs(row_order=row_order)
            outputs["global_scales"] = np.zeros(outputs["global_scales"].shape, np.uint16)  # as bits
            narrow = exchange.dispatch(*inputs_of(world.rank), outputs=outputs, row_order=row_order)
            has = np.flatnonzero(narrow.has_token)
            bits = wide.global_scales[np.flatnonzero(wide.has_token)].view(np.uint32)
            rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16
            assert (narrow.global_scales[has] == rounded).all()
            assert close(narrow.values()[has], wide.values()[np.flatnonzero(wide.has_token)], 2 ** -8)
            outputs["global_scales"] = np.zeros(outputs["global_scales"].shape, np.float16)
            with pytest.raises(ValueError, match="global_scales has dtype f16"):
                exchange.dispatch(*inputs_of(world.rank), outputs=outputs, row_order=row_order)

    devices.run_on_cpus(3, body)


def test_a_shared_expert_and_replicated_tokens(run):
    def body(world):
        rank = world.rank
        with open_exchange(world, fused_shared_expert=True) as exchange:
            arrivals = exchange.dispatch(*inputs_of(rank))
            rows = arrivals.values()
            for group in range(exchange.layout.groups):
                rows[arrivals.rows_of(group)] *= 1 if group == 0 else LAYER.experts_of(rank)[group - 1] + 1
            assert close(exchange.combine(rows), sums_of(rank) + LAYER.tokens[rank])
        with open_exchange(world, skip_a2a=True) as exchange:  # every rank has the tokens of rank 2
            arrivals = exchange.dispatch(*inputs_of(2))
            return exchange.combine(LAYER.results_of(rank, arrivals))

    assert close(sum(run(3, body)), sums_of(2))


def test_rows_without_room(run):
    def body(world):
        rank = world.rank
        with open_exchange(world) as exchange:
            arrivals = exchange.dispatch(*inputs_of(rank), overflow="reported", row_capacity=1, extra=["overflow"])
            lost = max(len(LAYER.rows_of(rank)) - 1, 0)
            assert arrivals.overflow.tolist() == [lost]
            exchange.combine(np.zeros((1, 256), np.float32))
            if lost:
                with pytest.raises(ValueError, match=str(lost)):
                    exchange.check()

    run(3, body)


def test_on_with_a_mask(run):
    def body(world):
        rank = world.rank
        exchange = open_exchange(world, deadline=2.0)
        if rank == 1:
            return
        exchange.add_to_mask([1])
        arrivals = exchange.dispatch(*inputs_of(rank))
        want = LAYER.sums(rank, lambda expert: 0 if LAYER.owner(expert) == 1 else expert + 1)
        assert close(exchange.combine(LAYER.results_of(rank, arrivals)), want)
        assert exchange.stats()["dropped"] == sum(LAYER.owner(expert) == 1 for expert in LAYER.ids[rank].ravel()
                                                  if expert >= 0)

    run(3, body)


def test_memory_is_given_back_between_rounds(run):
    def body(world):
        devices.need(world, "release")
        with open_exchange(world) as exchange:
            for _ in range(2):
                arrivals = exchange.dispatch(*inputs_of(world.rank))
                before = exchange.memory_bytes
                exchange.release()
                assert exchange.memory_bytes < before
                for call in (exchange.release, lambda: exchange.dispatch(*inputs_of(world.rank))):
                    with pytest.raises(ferry.OutOfOrder, match=r"call restore\(\) first"):
                        call()
                exchange.restore(deadline=10)
                assert exchange.memory_bytes == before
                with pytest.raises(ferry.OutOfOrder, match=r"must follow release\(\)"):
                    exchange.restore()
                assert close(exchange.combine(LAYER.results_of(world.rank, arrivals)), sums_of(world.rank))

    run(3, body)


def test_two_exchanges_share_a_memory(run):
    def body(world):
        devices.need(world, "shared_memory")
        with open_exchange(world) as first, open_exchange(world, format="mxfp8", memory_of=first) as second:
            assert (first.memory_bytes > 0, second.memory_bytes) == (True, 0)
            for _ in range(2):
                for exchange, other in ((second, first), (first, second)):
                    exchange.take_memory(deadline=10)
                    with pytest.raises(ferry.OutOfOrder, match=r"call take_memory\(\) first"):
                        other.dispatch(*inputs_of(world.rank))
                    arrivals = exchange.dispatch(*inputs_of(world.rank))
                    other.take_memory()
                    exchange.take_memory()
                    got = exchange.combine(LAYER.results_of(world.rank, arrivals))
                    assert close(got, sums_of(world.rank), room=0.1)
            with pytest.raises(ferry.InvalidArgument, match="make the larger exchange first"):
                devices.open_exchange(world, experts=8, top_k=2, max_tokens=60, hidden=256, memory_of=first)
            with pytest.raises(TypeError, match="it must be a ferry.Exchange"):
                open_exchange(world, memory_of=world)
            first.close()
            with pytest.raises(ferry.InvalidArgument, match="memory_of is closed"):
                open_exchange(world, memory_of=first)
            second.take_memory()
            assert second.memory_bytes > 0
            arrivals = second.dispatch(*inputs_of(world.rank))
            assert close(second.combine(LAYER.results_of(world.rank, arrivals)), sums_of(world.rank), room=0.1)

    run(3, body)


def test_an_input_scale_is_a_number_or_an_array_of_one():
    def body(world):
        inputs, found = inputs_of(world.rank), []
        with ferry.Exchange(world, experts=8, top_k=2, max_tokens=6, hidden=256, format="nvfp4") as exchange:
            for scale in (37.5, np.float32(37.5), np.array([37.5], np.float32)):
                found.append(exchange.dispatch(*inputs, input_scale=scale).values(input_scale=37.5))
            for scale in (np.ones(2, np.float32), np.ones(1, np.float64), np.ones(1, np.int32)):
                with pytest.raises(ValueError, match="input_scale is .*; it must be a number, or f32"):
                    exchange.dispatch(*inputs, input_scale=scale)
        assert (found[0] == found[1]).all() and (found[0] == found[2]).all()

    ferry.run_ranks(3, body)


def test_what_python_finds_is_invalid_argument_too():
    sizes = {"ranks": 2, "experts": 8, "top_k": 2, "max_tokens": 6, "hidden": 256}
    for call, text in [(lambda: ferry.memory_use(**{**sizes, "max_tokens": 2**40}), "max_tokens is 1099511627776"),
                       (lambda: ferry.run_ranks(2, print, device="gpu"), "device is 'gpu'"),
                       (lambda: ferry.formats.encode("mxfp8", np.zeros(32, np.float32)), r"tokens has shape \[32\]"),
                       (lambda: ferry.swiglu(np.zeros((4, 32), np.float32), np.zeros(2, np.uint32)), "rows has shape")]:
        with pytest.raises(ferry.InvalidArgument, match=text):
            call()
    for name in ("deadline", "set_up_deadline"):
        with pytest.raises(TypeError, match=f"{name} is 'soon'; it must be a number of seconds"):
            ferry.memory_use(**sizes, **{name: "soon"})
    for name, value, kind in [("format", 3, "text, or a Format"), ("result_format", b"bf16", "text, or a Format"),
                              ("reduction", 1, "text"), ("row_orders", 3, "a name, or several"), ("mask", 1, "numbers of ranks"),
                              ("tiled_scales", "yes", "True or False")]:
        with pytest.raises(TypeError, match=f"{name} is {value!r}; it must be {kind}$"):
            ferry.memory_use(**sizes, **{name: value})
    for name in (None, 3):
        with pytest.raises(TypeError, match=f"format is {name}; it must be text"):
            ferry.formats.encode(name, np.zeros((1, 32), np.float32))


def test_a_mask_names_ranks_that_are_there():
    sizes = {"ranks": 2, "experts": 8, "top_k": 2, "max_tokens": 6, "hidden": 256}

    def body(world):
        del sizes["ranks"]
        for rank in (9, -1, 1, 1 << 20):
            with pytest.raises(ferry.InvalidArgument, match=f"^the mask names rank {rank}; the ranks are 0 to 0$"):
                ferry.Exchange(world, **sizes, mask=[0, rank])

    for rank in (2, -1):
        for call in (ferry.exchange_layout, ferry.memory_use):
            with pytest.raises(ferry.InvalidArgument, match=f"^the mask names rank {rank}; the ranks are 0 to 1$"):
                call(**sizes, mask=[1, rank])
    with pytest.raises(TypeError, match="a rank of the mask is 'a'; it must be a whole number"):
        ferry.memory_use(**sizes, mask=["a"])
    assert ferry.memory_use(**sizes, mask=iter([np.int64(1)]))["total"] > 0
    ferry.run_ranks(1, body)


def test_a_bad_type_in_a_call_is_told_by_the_name_of_its_argument():
    def body(world):
        with open_exchange(world) as exchange:
            inputs = inputs_of(world.rank)
            for name, kind in [("deadline", "a number of seconds"), ("max_blocks", "a whole number"),
                               ("zero_padding", "True or False"), ("expert_stride", "a whole number")]:
                with pytest.raises(TypeError, match=f"{name} is 'a'; it must be {kind}"):
                    exchange.dispatch(*inputs, row_capacity=32, **{name: "a"})
            rows = exchange.dispatch(*inputs).values()
            for name, kind in [("deadline", "a number of seconds"), ("apply_weights", "True or False")]:
                with pytest.raises(TypeError, match=f"{name} is 'a'; it must be {kind}"):
                    exchange.combine(rows, **{name: "a"})
            exchange.combine(rows)
            with pytest.raises(TypeError, match="a rank of the mask is 'a'; it must be a whole number"):
                exchange.add_to_mask(["a"])
        with pytest.raises(TypeError, match="deadline is 'a'; it must be a number of seconds"):
            world.barrier(deadline="a")

    ferry.run_ranks(3, body)
    with pytest.raises(TypeError, match=r"clamp is 'a'; it must be \(alpha, limit\), two numbers"):
        ferry.swiglu(np.ones((4, 128), np.float32), np.array([0, 4], np.uint32), clamp="a")


def test_none_is_the_default():
    def body(world):
        with open_exchange(world, format=None, mask=None, row_orders=None) as exchange:
            arrivals = exchange.dispatch(*inputs_of(world.rank))
            assert arrivals.scales is None
            assert close(exchange.combine(LAYER.results_of(world.rank, arrivals)), sums_of(world.rank))

    ferry.run_ranks(3, body)


def test_one_extra_may_be_its_name():
    def body(world):
        with open_exchange(world) as exchange:
            weights = exchange.dispatch(*inputs_of(world.rank), extra="row_weights").row_weights
            assert weights is not None and "counts" in exchange.allocate_outputs(extra="counts")
            with pytest.raises(TypeError, match="extra is 3; it must be a name, or several"):
                exchange.allocate_outputs(extra=3)
            with pytest.raises(ferry.InvalidArgument, match="extra names 3; rows"):
                exchange.allocate_outputs(extra=[3])
            for name in ("row_capacity", "expert_stride"):
                with pytest.raises(TypeError, match=f"{name} is '9'; it must be a whole number"):
                    exchange.allocate_outputs(**{name: "9"})

    ferry.run_ranks(3, body)


def test_rows_of_refuses_a_group_that_is_not_there():
    def body(world):
        with open_exchange(world) as exchange:
            arrivals = exchange.dispatch(*inputs_of(world.rank))
            groups = exchange.layout.groups
            for group in (-1, groups):
                with pytest.raises(ferry.InvalidArgument, match=f"group is {group}; this rank has {groups}"):
                    arrivals.rows_of(group)
            with pytest.raises(TypeError, match="rows_of: group is 'first'; it must be a whole number"):
                arrivals.rows_of("first")
            with pytest.raises(ferry.InvalidArgument, match="extra names nothing"):
                exchange.allocate_outputs(extra=["nothing"])
            exchange.combine(arrivals.values())

    ferry.run_ranks(3, body)


def test_an_exchange_in_a_shared_memory_ends_by_close_or_with_the_others():
    """Else a thread that collects garbage could end one while another thread is in a call of another one."""
    def body(world):
        first = open_exchange(world)
        second = open_exchange(world, memory_of=first)
        third = open_exchange(world, memory_of=second)
        ends = [weakref.ref(each) for each in (first, second, third)]
        del second
        gc.collect()
        first.take_memory()
        assert ends[1]() is not None
        first.close()
        third.take_memory()
        third.close()
        del first, third
        assert ends[0]() is None and ends[2]() is None  # what was closed needs no collector
        gc.collect()
        assert ends[1]() is None

    ferry.run_ranks(1, body)  # two threads cannot collect at the same time: the second one returns at once
