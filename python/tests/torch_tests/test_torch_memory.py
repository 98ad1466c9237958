"""The tensors that calls of ferry.torch make: each is the caller's own, as torch.empty would have made it."""

import itertools

import pytest
import torch

import ferry
import ferry.torch
from ferry.torch import _exchange, _memory

IDS = torch.tensor([[0, 3], [2, 1], [3, 2]], dtype=torch.int32)
EXTRA = {"by_expert": ("handle", "counts", "row_weights", "row_sources", "messages", "cumulative_counts", "waited_ns"),
         "padded": ("handle", "row_weights"), "by_source": ("handle", "overflow"), "in_place": ("handle", "counts")}
ATTRIBUTES = ("shape", "dtype", "device", "layout", "requires_grad", "is_leaf")


def on_one_rank(body, **options):
    def with_exchange(world):
        with ferry.torch.Exchange(world, experts=4, top_k=2, max_tokens=3, hidden=128, row_orders=_exchange.ROW_ORDERS,
                                  **options) as exchange:
            return body(exchange)

    return ferry.run_ranks(1, with_exchange)[0]


def made_by(exchange, order, rows):
    """All tensors of a round, by name."""
    tokens = torch.arange(3 * 128, dtype=torch.float32).reshape(3, 128)
    arrivals = exchange.dispatch(tokens, IDS, torch.ones(3, 2), row_order=order, row_capacity=rows, extra=EXTRA[order],
                                 **({"expert_stride": 3} if order == "padded" else {}))
    sums = exchange.combine(torch.zeros(exchange.most_rows(order), 128))
    return {**arrivals.arrays, "sums": sums}


def bytes_of(tensor):
    return tensor.view(torch.uint8).flatten()


@pytest.mark.parametrize("name", ["bf16", "fp8_block128", "nvfp4"])
@pytest.mark.parametrize("order", _exchange.ROW_ORDERS)
def test_outputs_are_memory_of_their_own(order, name):
    """Contiguous and aligned; they share no byte; what is written into one changes no other; each outlives the rest."""
    def body(exchange):
        made = made_by(exchange, order, exchange.most_rows(order))
        aligned = {spec.name: spec.alignment for spec in exchange.layout.dispatch_outputs(
            exchange.most_rows(order), order, 3 if order == "padded" else 0, True)}
        for each, tensor in made.items():
            assert type(tensor) is torch.Tensor and tensor.is_contiguous() and tensor.storage_offset() == 0
            assert tensor._base is None and tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
            assert tensor.data_ptr() % max(16, aligned.get(each, 16)) == 0
        places = sorted((tensor.data_ptr(), tensor.data_ptr() + tensor.untyped_storage().nbytes())
                        for tensor in made.values() if tensor.numel())
        assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(places))
        return made

    made = on_one_rank(body, format=name)
    before = {each: bytes_of(tensor).clone() for each, tensor in made.items()}
    for number, each in enumerate(made):
        versions = {other: tensor._version for other, tensor in made.items()}
        bytes_of(made[each]).fill_(number + 1)
        before[each].fill_(number + 1)
        assert all(torch.equal(bytes_of(tensor), before[other]) for other, tensor in made.items())
        # Or a backward pass that needs another output would say that it was changed.
        assert all(tensor._version == versions[other] for other, tensor in made.items() if other != each)
    while made:  # the rest goes, and its memory is taken again
        each, tensor = made.popitem()
        kept, made = dict(made), {}
        others = [torch.full((size,), 255, dtype=torch.uint8) for size in (64, 256, 1024, 4096) for _ in range(8)]
        assert torch.equal(bytes_of(tensor), before[each])
        made = kept
        del others


@pytest.mark.parametrize("order", _exchange.ROW_ORDERS)
def test_they_are_what_torch_empty_makes(order, monkeypatch):
    """Also where torch has no quicker way, and with as many rows as come."""
    def body(exchange):
        return [made_by(exchange, order, rows) for rows in (exchange.most_rows(order), None)]

    quick = on_one_rank(body, format="fp8_block128")
    monkeypatch.setattr(_memory, "_quick", lambda kind: None)
    for mine, theirs in zip(quick, on_one_rank(body, format="fp8_block128")):
        assert list(mine) == list(theirs)
        for name, tensor in mine.items():
            assert [getattr(tensor, each) for each in ATTRIBUTES] == [getattr(theirs[name], each) for each in ATTRIBUTES]
            assert tensor.stride() == theirs[name].stride()


@pytest.mark.parametrize("shape", [(0,), (7,), (0, 4), (4, 0), (3, 5), (2, 0, 3), (2, 3, 4, 5, 6), ()])
def test_strides_are_those_of_torch(shape):
    assert _memory.strides_of(shape) == torch.empty(shape).stride()


def test_a_function_of_torch_that_makes_something_else_is_not_taken(monkeypatch):
    def raises(*_):
        raise TypeError("three arguments")

    taken = []
    for make in (raises, lambda shape, strides, dtype: torch.empty(shape), lambda *_: None,
                 lambda shape, strides, dtype: torch.empty(shape, dtype=dtype, device="meta"),
                 lambda shape, strides, dtype: torch.empty(shape, dtype=dtype)):
        monkeypatch.setattr(torch._C._dynamo.guards, "_empty_strided_cpu", make)
        _memory._quick.cache_clear()
        taken.append(_memory._quick("cpu") is make)
    _memory._quick.cache_clear()
    assert taken == [False, False, False, False, True]


def test_the_quick_way_is_there():
    """With this torch. Where a newer one lacks it calls take longer, and this says so."""
    assert _memory._quick("cpu") is not None


def test_memory_is_filled_where_torch_is_told_to():
    """torch.use_deterministic_algorithms fills what is not initialised; a handle is zeros all the same."""
    def body(exchange):
        return exchange.allocate_outputs(extra=("row_weights", "handle", "waited_ns"))

    torch.use_deterministic_algorithms(True)
    try:
        made = on_one_rank(body)
    finally:
        torch.use_deterministic_algorithms(False)
    assert made["row_weights"].isnan().all() and made["payload"].isnan().all() and (made["src_info"] == 2**31 - 1).all()
    assert not made["handle"].any() and not made["waited_ns"].any()


def test_in_inference_mode_they_are_tensors_of_it():
    def body(exchange):
        with torch.inference_mode():
            return made_by(exchange, "by_expert", exchange.most_rows())

    assert all(tensor.is_inference() for tensor in on_one_rank(body).values())
    assert not any(tensor.is_inference() for tensor in on_one_rank(
        lambda exchange: made_by(exchange, "by_expert", exchange.most_rows())).values())
