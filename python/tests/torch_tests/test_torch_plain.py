"""Tensors that calls take as they are, without a look through Python: which ones they are, and what becomes of others."""

import pytest
import torch

import ferry.torch
from ferry import _ferry


class Sub(torch.Tensor):
    pass


def are_plain(value, place=(1, 0)):
    return _ferry.are_plain_tensors(*place, {"tokens": value})


def test_which_tensors_are_plain():
    plain = torch.zeros(3, 4)
    assert are_plain(plain) and are_plain(None) and are_plain("by_expert") and are_plain(3) and are_plain(True)
    assert are_plain(plain[:, :2]) and are_plain(torch.nn.Parameter(plain, requires_grad=False))
    others = [plain.clone().requires_grad_(), plain.to_sparse(), plain.to("meta"), plain.as_subclass(Sub),
              plain.to(torch.float8_e4m3fn), plain.numpy(), [plain], object()]
    assert [are_plain(other) for other in others] == [False] * len(others)
    assert not are_plain(plain, (2, 0))  # on a GPU
    for named, is_plain in (({}, True), (None, True), ([plain], False), (plain, False), ({"rows": plain.double()}, True),
                            ({"rows": plain, "scales": others[0]}, False)):
        assert [_ferry.are_plain_tensors(1, 0, *both) for both in ((named,), (named, {}), ({}, named))] == [is_plain] * 3
    if not torch.cuda.is_available():
        assert _ferry.torch_stream(0) is None


def test_a_tensor_that_is_not_plain_is_looked_at():
    """Strided views, 8-bit floats and parameters give what plain tensors give; the rest is refused by name."""
    ids = torch.tensor([[0, 3], [2, 1]], dtype=torch.int32)

    def body(world):
        with ferry.torch.Exchange(world, experts=4, top_k=2, max_tokens=2, hidden=128, format="fp8_block128") as exchange:
            wide = torch.arange(2 * 256, dtype=torch.float32).reshape(2, 256)
            kept = exchange.dispatch(wide[:, :128].contiguous(), ids)
            found = [kept.values()]
            exchange.combine(kept.values())
            for tokens in (wide[:, :128], torch.nn.Parameter(wide, requires_grad=False)[:, :128]):
                arrivals = exchange.dispatch(tokens, ids, outputs={**kept.arrays, "payload": kept.payload})
                assert arrivals.payload.dtype == torch.float8_e4m3fn and arrivals.scales.dtype == torch.float32
                found.append(arrivals.values())
                exchange.combine(found[-1])
            for tokens, error in ((wide[:, :128].to_sparse(), TypeError), (wide[:, :128].as_subclass(Sub), TypeError),
                                  (wide[:, :128].to("meta"), ValueError)):
                with pytest.raises(error, match="tokens"):
                    exchange.dispatch(tokens, ids)
            return found

    (found,) = ferry.run_ranks(1, body)
    assert all(torch.equal(found[0], other) for other in found[1:])
