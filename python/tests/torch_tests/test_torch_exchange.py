"""The calls of ferry.torch.Exchange, beside the oracle."""

import contextlib
import inspect

import dense
import devices
import numpy as np
import pytest
import torch

import ferry
import ferry.torch
from oracle import make_layer

LAYER = make_layer(3, 8, 2, 256, [4, 0, 6])


def open_exchange(world, **options):
    options = {name: getattr(value, "plain", value) for name, value in options.items()}  # memory_of
    made = ferry.torch.Exchange(world, experts=8, top_k=2, max_tokens=6, hidden=256, **options)
    if world.device == "cpu" or "mask" in options:  # masked ranks make no calls to be in step with
        return made
    return devices.InStep(world, made)


def inputs_of(rank, dtype=torch.float32, device="cpu"):
    if device != "cpu":
        devices.settle(device)
    given = (LAYER.tokens[rank], LAYER.ids[rank], LAYER.weights[rank])
    tokens, ids, weights = (torch.from_numpy(array).to(device) for array in given)
    return tokens.to(dtype), ids, weights


def scaled(arrivals, rank):
    """The results where expert e multiplies by e + 1."""
    values = arrivals.values()
    for group, expert in enumerate(LAYER.experts_of(rank)):
        values[arrivals.rows_of(group)] *= expert + 1
    return values


def assert_sums(sums, rank, room=0.02):
    want = torch.from_numpy(LAYER.sums(rank, lambda expert: expert + 1))
    dense.assert_close(devices.on_cpu(sums), want, room)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_tensors_come_out_in_the_types_of_torch(dtype, run):
    def body(world):
        rank = world.rank
        with open_exchange(world) as exchange:
            arrivals = exchange.dispatch(*inputs_of(rank, dtype, world.device), extra=["row_weights"])
            assert arrivals.payload.dtype == torch.bfloat16 and arrivals.row_offsets.dtype == torch.int32
            rows = LAYER.rows_of(rank)
            assert arrivals.rows == len(rows) == int(arrivals.has_token.sum())
            found = (arrivals.values(), arrivals.src_info, arrivals.row_weights)
            values, info, weights = (devices.on_cpu(tensor) for tensor in found)
            for row, (_, source, token, k) in enumerate(rows):
                assert info[row].tolist() == [token, k]
                assert (values[row].numpy() == LAYER.tokens[source][token]).all()
                assert weights[row] == LAYER.weights[source][token][k]
            sums = devices.on_cpu(exchange.combine(scaled(arrivals, rank).to(dtype)))
            assert sums.dtype == dtype
            exchange.check()  # of a call that failed on a GPU the sums mean nothing
            assert_sums(sums, rank)

    run(3, body)


@pytest.mark.parametrize("name", ferry.formats.names())
@pytest.mark.parametrize("order", ["by_expert", "padded", "by_source"])
def test_values_of_every_format_and_order(name, order):
    """The decoder of torch gives what that of the base package gives, bit for bit."""
    def body(world):
        rank = world.rank
        with open_exchange(world, format=name, row_orders=["by_expert", "padded", "by_source"]) as exchange, \
                ferry.Exchange(world, experts=8, top_k=2, max_tokens=6, hidden=256, format=name,
                               row_orders=["by_expert", "padded", "by_source"]) as plain:
            arrivals = exchange.dispatch(*inputs_of(rank), row_order=order)
            want = plain.dispatch(LAYER.tokens[rank], LAYER.ids[rank], LAYER.weights[rank], row_order=order)
            assert (arrivals.has_token.numpy() == want.has_token).all() and arrivals.rows == want.rows
            assert (arrivals.values().numpy() == want.values()).all()
            if name.startswith("fp8"):
                assert arrivals.payload.dtype == torch.float8_e4m3fn
            if order == "by_source":
                assert (arrivals.row_topk_ids.numpy() == want.row_topk_ids).all()
            else:
                exchange.combine(scaled(arrivals, rank))

    ferry.run_ranks(3, body)


def test_rows_by_source_and_in_place(run):
    def body(world):
        rank = world.rank
        with open_exchange(world, row_orders=["by_source", "in_place"]) as exchange:
            arrivals = exchange.dispatch(*inputs_of(rank, device=world.device), row_order="by_source")
            factors = torch.where(arrivals.row_topk_ids >= 0,
                                  arrivals.row_topk_ids + exchange.first_expert + 1, 0) * arrivals.row_topk_weights
            assert_sums(exchange.combine(arrivals.values() * factors.sum(1, keepdim=True)), rank)
            arrivals = exchange.dispatch(*inputs_of(rank, device=world.device), row_order="in_place")
            slots = exchange.arrival_slots()["payload"].view(torch.bfloat16).flatten(0, 2)
            found = devices.on_cpu(slots[arrivals.gather[arrivals.has_token]].float())
            want = [LAYER.tokens[source][token] for _, source, token, _ in LAYER.rows_of(rank)]
            assert len(found) == len(want) and all((row.numpy() == one).all() for row, one in zip(found, want))
            world.barrier()  # others may send into the slots then

    run(3, body)


def test_handles_halves_and_memory_of_the_caller(run):
    def body(world):
        rank = world.rank
        tokens, ids, weights = inputs_of(rank, device=world.device)
        with open_exchange(world) as exchange:
            exchange.dispatch_async(tokens, ids, weights)
            assert exchange.wait_for_counts().rows == len(LAYER.rows_of(rank))
            first = exchange.dispatch_wait(extra=["handle"])
            rows = scaled(first, rank)
            again = exchange.dispatch(tokens * 2, handle=first.handle, outputs=exchange.allocate_outputs())
            has = again.has_token
            assert (again.values()[has] == 2 * first.values()[first.has_token]).all()
            exchange.combine_async(rows, handle=first.handle)
            sums = torch.empty_like(tokens)
            assert exchange.combine_wait(out=sums) is sums
            assert_sums(sums, rank)
            given = {**again.arrays, "row_offsets": again.row_offsets}  # with room for any rows, as GPUs ask for
            once_more = exchange.dispatch(tokens, ids, weights, outputs=given)
            assert once_more.payload.data_ptr() == again.payload.data_ptr()
            assert_sums(exchange.combine(rows, handle=first.handle, dtype=torch.bfloat16), rank)
            assert exchange.stats()["dispatches"] == 3 and exchange.memory_bytes > 0
            exchange.check()

    run(3, body)


def test_what_a_first_half_kept_is_recorded_for_the_stream_of_the_second(monkeypatch):
    """By a stream that only notes it: second halves of a CPU rank take the exchange for one of a GPU."""
    def body(world):
        def recorded_by(second_half):
            recorded = []
            with monkeypatch.context() as patch:
                patch.setattr(exchange, "device", torch.device("cuda:1"))
                patch.setattr(torch.cuda, "current_stream", lambda device: f"current of {device}")
                patch.setattr(torch.Tensor, "record_stream", lambda tensor, stream: recorded.append((tensor, stream)))
                found = second_half()
            assert {stream for _, stream in recorded} <= {"current of cuda:1"}
            return found, {id(tensor) for tensor, _ in recorded}

        tokens, ids, weights = inputs_of(world.rank)
        with open_exchange(world) as exchange:
            first = exchange.dispatch(tokens, ids, weights, leave_handle=True)
            exchange.dispatch_async(tokens, handle=first.handle)
            arrivals, recorded = recorded_by(exchange.dispatch_wait)
            assert recorded == {id(first.handle.data)}
            rows = arrivals.payload
            exchange.combine_async(rows, handle=first.handle)
            assert recorded_by(exchange.combine_wait)[1] == {id(rows), id(first.handle.data)}
            exchange.dispatch_async(tokens, ids, weights)  # all has been read: nothing was kept
            assert recorded_by(exchange.dispatch_wait)[1] == set()

    ferry.run_ranks(1, body)


def test_it_has_all_that_the_base_package_has():
    """But arrays of other frameworks, and streams: calls go to the current one."""
    ours, base = ferry.torch.Exchange, ferry.Exchange
    for name in (name for name in dir(base) if not name.startswith("_")):
        assert hasattr(ours, name) or name in ("device", "layout", "rank"), name  # attributes of each object
        if inspect.isfunction(getattr(base, name)):
            assert set(inspect.signature(getattr(base, name)).parameters) - {"stream", "like"} <= set(
                inspect.signature(getattr(ours, name)).parameters), name


def test_halves_take_the_options_of_whole_calls():
    def body(world):
        rank = world.rank
        with open_exchange(world, more_formats=["fp8_block128"]) as exchange:
            assert exchange.shape.hidden == 256 and exchange.shape.ranks == 3
            assert exchange.layout_in("fp8_block128").payload_row_bytes == 256 and exchange.layout_in(0).payload_row_bytes == 512
            exchange.dispatch_async(*inputs_of(rank), max_blocks=4)
            rows = scaled(exchange.dispatch_wait(max_blocks=4), rank)
            kept = []
            exchange.combine_async(rows, max_blocks=4)
            assert exchange.combine_wait(epilogue=lambda *given: kept.append(given), max_blocks=4,
                                         out=torch.zeros(len(LAYER.tokens[rank]), 256)) is None
            sums = torch.zeros(len(LAYER.tokens[rank]), 256)
            for token, column, values in kept:
                sums[token, column:column + len(values)] = torch.from_numpy(values)
            assert_sums(sums, rank)

    ferry.run_ranks(3, body)


def test_an_exchange_lies_in_the_memory_of_one_that_trains():
    def body(world):
        with open_exchange(world, backward="bf16") as trains:
            bytes_before = trains.memory_bytes
            with pytest.raises(ferry.InvalidArgument, match="from_group.*world_of_group"):
                ferry.torch.Exchange.from_group(memory_of=trains, experts=4, top_k=1, max_tokens=1, hidden=32)
            with pytest.raises(ferry.InvalidArgument, match="backward with memory_of"):
                open_exchange(world, backward="bf16", memory_of=trains)
            with open_exchange(world, memory_of=trains) as other:
                assert (trains.memory_bytes, other.memory_bytes) == (bytes_before, 0)
                for _ in range(2):
                    for exchange in (other, trains):
                        exchange.take_memory(deadline=10)
                        arrivals = exchange.dispatch(*inputs_of(world.rank))
                        assert_sums(exchange.combine(scaled(arrivals, world.rank)), world.rank)
                other.take_memory()
                with pytest.raises(ferry.OutOfOrder, match=r"call take_memory\(\) first"):
                    trains.dispatch(*inputs_of(world.rank))
            trains.take_memory()
            tokens, ids, weights = inputs_of(world.rank)
            tokens.requires_grad_()
            arrived = ferry.torch.dispatch(trains, tokens, ids, weights)
            ferry.torch.combine(trains, arrived.values * 2, arrived).sum().backward()
            assert tokens.grad is not None

    ferry.run_ranks(3, body)


def test_memory_of_another_exchange_and_memory_given_back(run):
    def body(world):
        def step(exchange):
            arrivals = exchange.dispatch(*inputs_of(world.rank, device=world.device))
            assert_sums(exchange.combine(scaled(arrivals, world.rank)), world.rank)
            world.barrier()

        with open_exchange(world) as exchange, open_exchange(world, memory_of=exchange) as other:
            assert other.memory_bytes == 0
            for one in (other, exchange, other):
                one.take_memory(deadline=10)
                step(one)
            exchange.take_memory()
            before = exchange.memory_bytes
            exchange.release()
            assert exchange.memory_bytes < before
            exchange.restore()
            step(exchange)

    run(3, body)


def test_bias_and_masks(run):
    def body(world):
        tokens, ids, weights = inputs_of(world.rank, device=world.device)
        with open_exchange(world) as exchange:
            arrivals = exchange.dispatch(tokens, ids, weights)
            rows = scaled(arrivals, world.rank)
            plain = exchange.combine(rows, dtype=torch.float32)
            arrivals = exchange.dispatch(tokens, ids, weights)
            found = exchange.combine(scaled(arrivals, world.rank), bias=[tokens, 2 * tokens], dtype=torch.float32)
            dense.assert_close(devices.on_cpu(found), devices.on_cpu(plain + 3 * tokens).double(), 1e-6)
            is_there = torch.tensor([expert not in LAYER.experts_of(1) for expert in range(8)]).to(world.device)
            kept = torch.where(is_there[ids.clamp(min=0).long()] & (ids >= 0), weights, 0).sum(1, keepdim=True)
            want = devices.on_cpu(kept * tokens).double()
            world.barrier()
        with open_exchange(world, mask=[1]) if world.rank != 1 else contextlib.nullcontext() as exchange:
            if exchange is not None:
                arrivals = exchange.dispatch(tokens, ids, weights)
                assert arrivals.rows == sum(source != 1 for _, source, _, _ in LAYER.rows_of(world.rank))
                sums = exchange.combine(arrivals.values(), dtype=torch.float32)
                dense.assert_close(devices.on_cpu(sums), want, 0.02)

    run(3, body)


def test_memory_is_given_back_between_steps():
    def body(world):
        def step(exchange, between):
            tokens, ids, weights = inputs_of(world.rank)
            tokens.requires_grad_()
            arrived = ferry.torch.dispatch(exchange, tokens, ids, weights)
            between(exchange)
            sums = ferry.torch.combine(exchange, arrived.values * 2, arrived)
            sums.backward(torch.ones_like(sums))
            return sums.detach(), tokens.grad

        def sleep(exchange):
            before = exchange.memory_bytes
            exchange.release()
            assert exchange.memory_bytes < before
            with pytest.raises(ferry.OutOfOrder, match=r"call restore\(\) first"):
                exchange.dispatch(*inputs_of(world.rank))
            exchange.restore()
            assert exchange.memory_bytes == before

        with open_exchange(world, backward="bf16") as exchange:
            want = step(exchange, lambda exchange: None)
            for _ in range(2):
                assert all(torch.equal(*each) for each in zip(step(exchange, sleep), want))
                sleep(exchange)

    ferry.run_ranks(3, body)


def test_encoded_tokens_are_float8(run):
    def body(world):
        rank = world.rank
        tokens, ids, weights = inputs_of(rank, device=world.device)
        encoded = ferry.formats.encode("fp8_block128", LAYER.tokens[rank])
        codes, scales = (torch.from_numpy(array).to(world.device) for array in encoded)
        with open_exchange(world, format="fp8_block128") as exchange:
            want = exchange.dispatch(tokens, ids, weights).values()
            got = exchange.dispatch(codes.view(torch.float8_e4m3fn), ids, weights, token_scales=scales)
            assert (got.values() == want).all()

    run(3, body)


def test_bytes_that_nobody_looks_at_stay_bytes():
    """Codes of int8 with scales of two bytes, and what wants values of them."""
    own = ferry.formats.bytes_format(48, scales_per_row=3, scale_bytes=2)
    layer = make_layer(2, 4, 2, 64, [3, 2])
    given = [torch.arange(len(tokens) * 48, dtype=torch.int8).reshape(-1, 48) for tokens in layer.tokens]
    scales = [torch.arange(3 * len(tokens), dtype=torch.float16).reshape(-1, 3) for tokens in layer.tokens]

    def body(world):
        rank, shape = world.rank, dict(experts=4, top_k=2, max_tokens=3, hidden=64)
        ids = torch.from_numpy(layer.ids[rank])
        with pytest.raises(ferry.InvalidArgument, match="backward is bytes_48_3x2.*bf16"):
            ferry.torch.Exchange(world, **shape, backward=own)
        with ferry.torch.Exchange(world, **shape, format=own) as exchange:
            with pytest.raises(ferry.InvalidArgument, match="bytes_48_3x2.*exchange.dispatch"):
                ferry.torch.dispatch(exchange, given[rank].view(torch.uint8), ids, dtype=torch.float32)
            with pytest.raises(ferry.InvalidArgument, match="format is bytes_48_3x2"):
                ferry.torch.MoELayer(exchange, 32)
            arrivals = exchange.dispatch(given[rank].view(torch.uint8), ids,
                                         token_scales=scales[rank].view(torch.uint8))
            with pytest.raises(ferry.InvalidArgument, match="bytes_48_3x2"):
                arrivals.values()
            assert arrivals.payload.dtype == arrivals.scales.dtype == torch.uint8
            origins = [(source, token, k) for expert in range(2 * rank, 2 * rank + 2) for source in range(2)
                       for token in range(len(layer.ids[source])) for k in range(2)
                       if layer.ids[source][token, k] == expert]
            rows = torch.nonzero(arrivals.has_token)[:, 0].tolist()
            assert len(rows) == len(origins)
            for row, (source, token, _) in zip(rows, origins):
                assert (arrivals.payload[row].view(torch.int8) == given[source][token]).all()
                assert (arrivals.scales[row].view(torch.float16) == scales[source][token]).all()

    ferry.run_ranks(2, body)


def test_memory_of_torch_in_an_exchange_of_numpy():
    types = {"bf16": torch.bfloat16, "u8": torch.uint8, "u32": torch.uint32, "i32": torch.int32, "f32": torch.float32,
             "i64": torch.int64}

    def body(world):
        with ferry.Exchange(world, experts=4, top_k=2, max_tokens=4, hidden=64,
                            allocate=lambda name, shape, dtype: torch.empty(shape, dtype=types[dtype])) as exchange:
            arrivals = exchange.dispatch(np.full((2, 64), 3, np.float32), np.array([[0, 2], [3, 1]], np.int32))
            values = arrivals.values()
            assert (np.asarray(values)[arrivals.has_token] == 3).all()

    ferry.run_ranks(2, body)


@pytest.mark.parametrize("order", ["by_expert", "by_source"])
def test_a_functional_dispatch_into_too_few_rows_is_ended(order):
    """Nobody could call its second half."""
    tokens, ids = torch.ones(2, 64), torch.tensor([[0, 3], [2, 1]])

    def body(world):
        with ferry.torch.Exchange(world, experts=4, top_k=2, max_tokens=2, hidden=64,
                                  row_orders=[order]) as exchange:
            came = ferry.torch.dispatch(exchange, tokens, ids, row_order=order).values.shape[0]
            if world.rank == 0:
                with pytest.raises(ferry.InvalidArgument, match=f"rank 0: rows is 1; {came} came, and are lost: give rows={came}"):
                    ferry.torch.dispatch(exchange, tokens, ids, row_order=order, rows=1)
            else:
                ferry.torch.dispatch(exchange, tokens, ids, row_order=order)
            arrived = ferry.torch.dispatch(exchange, tokens, ids, row_order=order)
            sums = ferry.torch.combine(exchange, arrived.values, arrived)
            assert torch.equal(sums, tokens * 2)

    ferry.run_ranks(2, body)
