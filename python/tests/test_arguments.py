"""What is none of the kind that an argument takes is refused by the argument's name, and True is no number."""

import os
import weakref

import numpy as np
import pytest

import ferry

SIZES = dict(experts=8, top_k=2, max_tokens=4, hidden=64)
SHAPE = dict(ranks=2, **SIZES)
TOKENS, IDS = np.ones((2, 64), np.float32), np.array([[0, 7], [2, 5]], np.int32)
FORMAT = ferry.formats.format_named("mxfp8")
CODES, SCALES = FORMAT.encode(TOKENS)

WRONG = {  # of each kind: what is none, beside None where that is none
    "whole": ["a", "12", b"1", 1.5, True, np.True_, [1], {}],
    "flag": ["a", 1, 0.0, [True]],
    "text": [b"x", 3, True, ["a"]],
    "seconds": ["a", "1", True, [1.0], {}],
    "number": ["a", [1.0], True],
    "function": ["a", 3],
    "ranks": ["a", 3, 1.5],
}
NONE_IS_TAKEN = {"seconds", "number"}


def refuses_all(argument, kind, call, none=None):
    """call(value) refuses every value of the kind by the argument's name. `none`: whether None is refused, too."""
    refused = WRONG[kind] + ([None] if (kind not in NONE_IS_TAKEN if none is None else none) else [])
    for value in refused:
        with pytest.raises((TypeError, ferry.Error)) as raised:
            call(value)
        text = str(raised.value)
        assert f"{argument} is " in text and "; it must be" in text and "incompatible" not in text, (argument, value, text)


def refuses_arguments(call, kinds, **good):
    for argument, kind in kinds.items():
        refuses_all(argument, kind, lambda value: call(**{**good, argument: value}))


def test_functions():
    of_shape = dict.fromkeys(SHAPE, "whole")
    refuses_arguments(ferry.Shape, of_shape, **SHAPE)
    refuses_arguments(ferry.exchange_layout, {**of_shape, "rank": "whole"}, **SHAPE)
    refuses_arguments(ferry.cuda_state_bytes, of_shape, **SHAPE)
    refuses_arguments(ferry.memory_use, {**of_shape, "has_remote_ranks": "flag", "deadline": "seconds"}, **SHAPE)
    for argument in ("expert_alignment", "message_copies", "concurrent", "workers", "reserve_sms",
                     "allreduce_world_size"):
        refuses_all(argument, "whole", lambda value: ferry.memory_use(**SHAPE, **{argument: value}), none=False)
    refuses_all("a name of row_orders", "text", lambda value: ferry.memory_use(**SHAPE, row_orders=[value]))
    refuses_arguments(ferry.make_thread_worlds, {"ranks": "whole"})
    refuses_arguments(ferry.cuda_worlds, {"ranks": "whole", "staged": "flag"}, ranks=1)
    refuses_all("devices", "ranks", lambda value: ferry.cuda_worlds(1, devices=value), none=False)
    refuses_arguments(ferry.run_ranks, {"ranks": "whole", "body": "function"}, ranks=1, body=print)
    refuses_arguments(ferry.run_worlds, {"worlds": "ranks", "body": "function"}, worlds=[], body=print)
    rows, offsets = np.ones((4, 128), np.float32), np.array([0, 4], np.uint32)
    refuses_arguments(ferry.swiglu, {"interleaved": "flag", "tiled_scales": "flag"}, rows=rows, row_offsets=offsets)
    for path in (None, 3, True):
        with pytest.raises(TypeError, match=f"path is {path}; it must be text"), ferry.trace(path):
            pass


def test_formats():
    for sizes in (FORMAT.payload_bytes, FORMAT.scales_per_row, FORMAT.message_bytes):
        refuses_arguments(sizes, {"hidden": "whole"})
        for hidden in (33, 0, -32, 2**25):
            with pytest.raises(ferry.InvalidArgument, match=f"hidden is {hidden}; it must be a positive multiple of 32"):
                sizes(hidden)
    refuses_arguments(FORMAT.encode, {"input_scale": "number"}, tokens=TOKENS)
    refuses_arguments(FORMAT.decode, {"hidden": "whole", "input_scale": "number"}, payload=CODES, scales=SCALES, hidden=64)
    with pytest.raises(ferry.InvalidArgument, match="hidden is -1; it must be a positive multiple of 32"):
        FORMAT.decode(CODES, SCALES, -1)


def test_layouts():
    layout, shape = ferry.exchange_layout(**SHAPE), ferry.Shape(**SHAPE)
    refuses_arguments(layout.least_rows, {"row_order": "text", "expert_stride": "whole"}, row_order="by_expert")
    refuses_arguments(layout.dispatch_outputs, {"row_capacity": "whole", "row_order": "text", "expert_stride": "whole",
                                                "all": "flag"}, row_capacity=9)
    refuses_arguments(shape.num_local_experts, {"rank": "whole"})
    refuses_arguments(shape.first_expert, {"rank": "whole"})
    refuses_arguments(shape.owner_of, {"expert": "whole"})
    with pytest.raises(ferry.InvalidArgument, match=f"expert is {2**40}; it must fit 32 bits"):
        shape.owner_of(2**40)


def test_worlds():
    world, = ferry.make_thread_worlds(1)
    refuses_arguments(world.barrier, {"mask": "ranks", "deadline": "seconds"})
    refuses_all("mine", "text", lambda value: world.all_gather("a" if value == b"x" else value))
    refuses_arguments(world.all_gather, {"mask": "ranks", "deadline": "seconds"}, mine=b"x")
    refuses_arguments(world.abort, {"reason": "text", "missing_rank": "whole"}, reason="why")
    place = {"rank": "whole", "size": "whole", "local_rank": "whole", "device": "text", "deadline": "seconds"}
    refuses_arguments(ferry.World.connect, {**place, "address": "text", "job": "text"}, address="127.0.0.1:1", rank=0,
                      size=1)
    refuses_arguments(ferry.World.from_all_gather, {**place, "all_gather": "function"}, rank=0, size=1,
                      all_gather=lambda mine: [mine])
    refuses_arguments(ferry.World.from_shmem, {"nodes": "whole", "heap_bytes": "whole", "deadline": "seconds"})
    refuses_arguments(ferry.World.from_nvshmem, {"nodes": "whole", "ranks_per_node": "whole", "heap_bytes": "whole",
                                                 "address": "text", "device": "text", "deadline": "seconds"})
    with pytest.raises(TypeError, match="what all_gather returned is None; it must be the bytes of all ranks"):
        ferry.World.from_all_gather(0, 1, lambda mine: None)
    with pytest.raises(TypeError, match="core is 3; it must be"):
        ferry.World(3)


def test_calls():
    def body(world):
        sizes = dict.fromkeys(SIZES, "whole")
        refuses_arguments(lambda **given: ferry.Exchange(world, **given), {**sizes, "set_up_deadline": "seconds"}, **SIZES)
        refuses_all("allocate", "function", lambda value: ferry.Exchange(world, **SIZES, allocate=value), none=False)
        exchange = ferry.Exchange(world, **SIZES)
        refuses_arguments(exchange.dispatch, {"deadline": "seconds", "max_blocks": "whole", "zero_padding": "flag",
                                              "leave_handle": "flag"},
                          tokens=TOKENS, topk_ids=IDS, row_capacity=9)
        for argument, kind in [("row_capacity", "whole"), ("expert_stride", "whole"), ("row_order", "text")]:
            refuses_all(argument, kind, lambda value: exchange.dispatch(
                TOKENS, IDS, **{"row_capacity": 9, argument: value}), none=False)
        refuses_arguments(exchange.allocate_outputs, {"row_order": "text", "expert_stride": "whole"})
        refuses_arguments(exchange.add_to_mask, {"ranks": "ranks"})
        with pytest.raises(TypeError, match="outputs is 'a'; it must be a dict of arrays"):
            exchange.dispatch(TOKENS, IDS, outputs="a")
        outputs = exchange.allocate_outputs()
        for name in (3, None, "payloads", "pay"):
            with pytest.raises(TypeError, match=f"there is no argument {name}"):
                exchange.dispatch(TOKENS, IDS, outputs={**outputs, name: TOKENS})
        with pytest.raises(TypeError, match="extra is 3; it must be a name"):
            exchange.dispatch(TOKENS, IDS, outputs=outputs, extra=3)
        with pytest.raises(TypeError, match="there is no argument row_oder"):  # None is given to what there is alone
            exchange.dispatch(TOKENS, IDS, row_oder=None)
        arrivals = exchange.dispatch(TOKENS, IDS, row_order=None, input_scale=None, format=None, in_rank=None)
        with pytest.raises(TypeError, match="there is no argument biases"):
            exchange.combine(arrivals.values(), biases=None)
        exchange.combine(arrivals.values(), bias=None, handle=None, sum_order=None, reduction=None)
        arrivals = exchange.dispatch(TOKENS, IDS)
        refuses_all("input_scale", "number", lambda value: arrivals.values(input_scale=value))
        refuses_all("group", "whole", arrivals.rows_of)
        one_or_two = "it must be a list of arrays: give a list of one or two$"
        for bias, told in ((3, "3"), ("ab", "'ab'"), (TOKENS, "<class 'numpy.ndarray'>")):
            with pytest.raises(TypeError, match=f"bias is {told}; {one_or_two}"):
                exchange.combine(arrivals.values(), bias=bias)
        refuses_arguments(exchange.combine, {"deadline": "seconds", "max_blocks": "whole"}, rows=arrivals.values())
        with pytest.raises(ValueError, match="the dtype of rows is float64; it must be one of float32"):
            exchange.combine(arrivals.values().astype("f8"))
        with pytest.raises(ValueError, match="deadline is -1 s; it must be above 0 and at most 86400"):
            exchange.combine(arrivals.values(), deadline=-1)
        with pytest.raises(ValueError, match="max_blocks is -1; it must be 0"):
            exchange.combine(arrivals.values(), max_blocks=-1)
        refuses_all("apply_weights", "flag", lambda value: exchange.combine(arrivals.values(), apply_weights=value),
                    none=False)
        exchange.combine(arrivals.values())
        for given in (None, 3, "a"):
            with pytest.raises(TypeError, match="dispatch_all: exchanges is .*; it must be a list of exchanges"):
                ferry.dispatch_all(given, [])
            with pytest.raises(TypeError, match=r"combine_all: calls\[0\] is .*; it must be a dict of arguments"):
                ferry.combine_all([exchange], [given])

    ferry.run_ranks(1, body)


@pytest.mark.parametrize("address", ["127.0.0.1:99999", "127.0.0.1:0", "127.0.0.1", ":"])
def test_the_address_of_one_rank_is_judged_too(address):
    with pytest.raises(ferry.InvalidArgument, match="with a port from 1 to 65535"):
        ferry.World.connect(address, 0, 1)


def test_what_is_closed_is_an_error_of_ferry_and_a_value_error():
    world, = ferry.make_thread_worlds(1)
    exchange = ferry.Exchange(world, **SIZES)
    exchange.close()
    world.close()
    for call in (lambda: exchange.dispatch(TOKENS, IDS), exchange.check, exchange.stats, lambda: exchange.shape,
                 lambda: exchange.rank, world.barrier, world.capabilities, lambda: world.size,
                 lambda: ferry.Exchange(world, **SIZES), lambda: ferry.dispatch_all([exchange], [{}])):
        with pytest.raises(ferry.Closed, match="is closed") as raised:
            call()
        assert isinstance(raised.value, ferry.Error) and isinstance(raised.value, ValueError)


def test_all_refusals_of_an_object_are_errors_of_ferry():
    world, = ferry.make_thread_worlds(1)
    child = os.fork()
    if child == 0:
        try:
            world.barrier()
        except ferry.OutOfOrder as error:
            os._exit("fork" in str(error))
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    exchange = ferry.Exchange(world, **SIZES)
    for exchanges, calls in ([[exchange], []], [[exchange, exchange], [{}, {}]]):
        with pytest.raises(ferry.InvalidArgument, match="dispatch_all: exchanges"):
            ferry.dispatch_all(exchanges, calls)


def test_what_a_combine_fills_is_refused_by_the_names_of_its_arguments():
    """C++ has its outputs by other names. What it reads by one of these names keeps it."""
    def body(world):
        with ferry.Exchange(world, **SIZES, late_weights=True, returns_weights=True) as exchange:
            rows = exchange.dispatch(TOKENS, IDS).values()
            short, narrow = np.ones((1, 64), np.float32), np.ones((2, 1), np.float32)
            for named, error, call in [
                    ("out is f32", ValueError, lambda: exchange.combine(rows, out=short)),
                    ("out has elements", TypeError, lambda: exchange.combine(rows, out=TOKENS.astype(np.complex64))),
                    ("topk_weights_out is f32", ValueError, lambda: exchange.combine(rows, topk_weights_out=narrow)),
                    ("topk_weights is f32", ValueError, lambda: exchange.combine(rows, topk_weights=narrow))]:
                with pytest.raises(error, match=rf"^(rank \d: )?{named}"):
                    call()
            exchange.combine_async(rows)
            for named, outputs in [("out is f32", {"out": short}), ("topk_weights_out is f32", {"topk_weights_out": narrow})]:
                with pytest.raises(ValueError, match=rf"^rank \d: {named}"):
                    exchange.combine_wait(**outputs)
            exchange.combine_wait()

    ferry.run_ranks(2, body)


def test_what_is_wrong_with_an_array_is_said():
    def body(world):
        with ferry.Exchange(world, **SIZES) as exchange:
            for dtype, told in [(">f4", ">f4"), (object, "object")]:
                with pytest.raises(TypeError, match=f"tokens is <class 'numpy.ndarray'> of dtype {told}; .* byte order"):
                    exchange.dispatch(TOKENS.astype(dtype), IDS)
            with pytest.raises(ferry.InvalidArgument, match="row_capacity is 4611686018427387904; the limit is 2147483647"):
                exchange.dispatch(TOKENS, IDS, row_capacity=2**62)
            with pytest.raises(ferry.OutOfOrder, match="combine_wait"):
                exchange.combine_wait()

    ferry.run_ranks(2, body)


def test_flags_are_no_bytes():
    """A bool has the width of an encoded byte, and of nothing else that calls read or fill but in_rank."""
    def body(world):
        sizes = dict(SIZES, row_orders=["by_expert", "by_source"])
        with ferry.Exchange(world, **sizes) as exchange:
            encoded = np.ones((2, 128), np.uint8)  # bf16
            assert (exchange.dispatch(encoded, IDS).payload.view(np.uint8) == 1).all()
            with pytest.raises(TypeError, match="^tokens has elements of type bool, which Ferry takes for in_rank alone"):
                exchange.dispatch(encoded.astype(bool), IDS)
            left = exchange.dispatch(TOKENS, IDS, leave_handle=True)
            with pytest.raises(TypeError, match="^handle has elements of type bool"):
                exchange.dispatch(TOKENS, handle=left.handle.data.view(bool))
            outputs = exchange.allocate_outputs()
            with pytest.raises(TypeError, match="^payload has elements of type bool"):
                exchange.dispatch(TOKENS, IDS, outputs={**outputs, "payload": outputs["payload"].view(bool)})
            arrivals = exchange.dispatch(TOKENS, in_rank=np.ones((2, 1), bool), row_order="by_source",
                                         expert_counts=np.ones(8, np.int32))
            assert arrivals.rows == 2

    ferry.run_ranks(1, body)


class Stream:
    """As cupy has them: who drops the last reference destroys the stream."""

    ptr = 5


def test_a_stream_lives_as_long_as_its_number():
    stream = Stream()
    dropped = weakref.ref(stream)
    number = ferry._frameworks.stream_number(stream, "", "cuda:0")
    assert ferry._frameworks.stream_number(number, "", "cuda:0") is number == 5
    del stream
    assert dropped() is not None
    del number
    assert dropped() is None
