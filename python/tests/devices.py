"""What the suites run on: CPU ranks with numpy, and GPU ranks with tensors of torch. Tests see numpy on both."""

import importlib.util
import os

os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")  # ranks that share a GPU: their streams stay apart

import numpy as np
import pytest

import ferry

TORCH = importlib.util.find_spec("torch") is not None


def why_no_gpus():
    """Why nothing can run on GPUs here, or None."""
    if not ferry.has_cuda():
        return "this build has no GPU ranks"
    if ferry.cuda_devices() == 0:
        return "no GPU was found"
    return None if TORCH else "torch was not found"


def run_on_cpus(ranks, body):
    return ferry.run_ranks(ranks, body)


class Gpus:
    """Ranks on the GPUs there are, some on each, on a stream of torch each, which is current in the body."""

    def __init__(self):
        self._streams = {}

    def run(self, ranks, body):
        import torch
        on_each = -(-ranks // ferry.cuda_devices())
        devices = [rank // on_each for rank in range(ranks)]
        streams = [self._stream(device, rank) for rank, device in enumerate(devices)]

        def on_gpu(world):
            with torch.cuda.device(world.device), torch.cuda.stream(streams[world.rank]):
                result = body(world)
                torch.cuda.current_stream().synchronize()
                return result

        worlds = ferry.cuda_worlds(ranks, devices=devices)
        try:
            return ferry.run_worlds(worlds, on_gpu)
        finally:
            for world in worlds:
                world.close()

    def _stream(self, device, rank):
        """A stream whose memory torch has already, on the host, too, where it puts a scalar (Tensor.item): an allocation
        may wait for the kernels of other ranks."""
        import torch
        scalars = (torch.uint8, torch.int32, torch.int64)
        if (device, rank) not in self._streams:
            self._streams[device, rank] = torch.cuda.Stream(device)
        stream = self._streams[device, rank]
        with torch.cuda.device(device), torch.cuda.stream(stream):
            kept = [torch.empty(1 << 20, dtype=torch.uint8, device="cuda") for _ in range(32)]
            kept += [torch.empty(64 << 20, dtype=torch.uint8, device="cuda")]
            kept += [torch.empty(1, dtype=dtype, pin_memory=True) for dtype in scalars for _ in range(8)]
            del kept
            stream.synchronize()
        return stream


def settle(device):
    """Waits for the current stream. A copy from or to pageable memory that stands behind a waiting kernel holds up all
    launches of the process, those of the rank that the kernel waits for, too."""
    import torch
    torch.cuda.current_stream(device).synchronize()


def on_gpu(array, device):
    """torch's copy of an array of numpy."""
    import torch
    settle(device)
    array = np.ascontiguousarray(array).reshape(array.shape)  # numpy makes a row of a single number
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).to(device).view(torch.bfloat16)
    return torch.from_numpy(array).to(device)


def on_cpu(tensor):
    """torch's copy on the CPU. Waits for the current stream."""
    if tensor.device.type != "cpu":
        settle(tensor.device)
    return tensor.cpu()


def on_host(tensor):
    """numpy's copy of a tensor. Waits for the current stream."""
    import torch
    if tensor.device.type != "cpu":
        settle(tensor.device)
    if tensor.dtype != torch.bfloat16:
        return tensor.cpu().numpy()
    bits = tensor.view(torch.int16).cpu().numpy().view(np.uint16)
    return bits.view(ferry._arrays.bf16())


def need(world, *abilities):
    """Skips the test where worlds of this kind cannot do it."""
    for ability in abilities:
        if not world.capabilities()[ability]:
            pytest.skip(f"worlds of {world.kind}: no {ability}")


def open_exchange(world, **options):
    """An exchange that takes and gives arrays of numpy, wherever its own lie."""
    return ferry.Exchange(world, **options) if world.device == "cpu" else ExchangeOnGpu(world, options)


class InStep:
    """An exchange whose calls all ranks begin and end together, for ranks of a process that share a GPU.

    What torch asks of CUDA for the first time, a kernel, memory of the host, may wait for what runs on the GPU, and so
    for a call of another rank, which waits for this one. So no rank is in a call while another one uses torch.
    """
    CALLS = ("dispatch", "dispatch_async", "dispatch_wait", "combine", "combine_async", "combine_wait")

    def __init__(self, world, plain):
        self._world, self.plain = world, plain

    def __getattr__(self, name):
        found = getattr(self.plain, name)
        if name not in self.CALLS:
            return found

        def call(*given, **named):
            self._world.barrier()
            result = found(*given, **named)  # on a GPU it only enqueues
            self._world.barrier()
            return result

        return call

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.plain.__exit__(*error)


class ExchangeOnGpu:
    """An exchange whose arguments and results are copied. All else is the exchange's."""

    def __init__(self, world, options):
        options = {name: getattr(value, "plain", value) for name, value in options.items()}  # memory_of
        self.plain = ferry.Exchange(world, **{"deadline": 10.0, **options})
        self._device = world.device

    def __getattr__(self, name):
        found = getattr(self.plain, name)
        if not callable(found):
            return found
        return lambda *given, **named: self._called(found, given, named)

    def _called(self, call, given, named):
        there = {key: self._given(value) for key, value in named.items()}
        result = self._taken(call(*map(self._given, given), **there))
        for key in ("out", "topk_weights_out", "waited_ns"):  # the caller's array is what the call fills
            if isinstance(named.get(key), np.ndarray):
                named[key][...] = on_host(there[key])
        return result

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.plain.__exit__(*error)

    def _given(self, value):
        if isinstance(value, np.ndarray):
            return on_gpu(value, self._device)
        if isinstance(value, dict):
            return {name: self._given(one) for name, one in value.items()}
        return [self._given(one) for one in value] if isinstance(value, list) else value

    def _taken(self, value):
        if isinstance(value, ferry.Arrivals):
            return ArrivalsOnHost(value)
        if isinstance(value, dict):
            return {name: self._taken(one) for name, one in value.items()}
        return on_host(value) if hasattr(value, "cpu") else value


class ArrivalsOnHost:
    """Arrivals whose arrays are copies; but `arrays` has them as they are."""

    def __init__(self, plain):
        self.plain = plain

    def __getattr__(self, name):
        found = getattr(self.plain, name)
        return on_host(found) if hasattr(found, "cpu") else found

    def __repr__(self):
        return repr(self.plain)
