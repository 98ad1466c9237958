"""What tests see of exchanges on GPUs, with CPU ranks in their place."""

import numpy as np
import pytest

import devices
import ferry

torch = pytest.importorskip("torch")
SHAPE = dict(experts=2, top_k=1, max_tokens=2, hidden=32, returns_weights=True)
TOKENS, IDS = np.ones((2, 32), np.float32), np.zeros((2, 1), np.int32)


def test_arrays_of_the_caller_are_what_the_call_fills_and_arrivals_say_what_they_have(monkeypatch):
    monkeypatch.setattr(devices, "on_gpu", lambda array, device: torch.from_numpy(array.copy()))

    def body(world):
        exchange = devices.ExchangeOnGpu(world, SHAPE)
        arrivals = exchange.dispatch(TOKENS, IDS)
        assert "src_info" in repr(arrivals) and repr(arrivals) == repr(arrivals.plain)

        def waits(out, **filled):
            assert filled["waited_ns"].tolist() == [7] and type(filled["waited_ns"]) is torch.Tensor
            for array in (out, *filled.values()):
                array.fill_(9)
            return out

        exchange.plain.combine_wait = waits
        filled = dict(out=np.zeros((2, 32), np.float32), topk_weights_out=np.zeros((2, 1), np.float32),
                      waited_ns=np.full(1, 7))
        exchange.combine_wait(**filled)
        assert all((array == 9).all() for array in filled.values())

    ferry.run_ranks(1, body)
