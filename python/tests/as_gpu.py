"""CPU ranks in the place of GPU ranks, and frameworks in the place of torch and cupy: what Python does for GPUs runs."""

import contextlib
import sys
import types

import numpy as np

import ferry


class CalledAsOnGpus(ferry.Exchange):
    """A CPU rank whose halves one thread calls, all first ones first, as it does for GPUs."""

    device = property(lambda _: "cuda:0")


class FindsLate:
    """The core of an exchange. Its next calls of these names raise what kernels found, one error each, as GPUs do before
    they do anything else."""

    def __init__(self, exchange, names):
        self._core, self._names, self.found = exchange._core, names, []
        exchange._core = self

    def __getattr__(self, name):
        if name in self._names and self.found:
            raise self.found.pop(0)
        return getattr(self._core, name)


class Framework:
    """What stands for torch or cupy: memory of numpy, and streams by their numbers. `made`: on which stream each array.

    It is the framework of every exchange that `called_as_on_gpu` gets.
    """

    def __init__(self, name, monkeypatch):
        self.name, self.stream, self.captured, self.made = name, 0, set(), []
        monkeypatch.setattr(ferry._ferry, "torch_stream", lambda index: self.stream)
        monkeypatch.setattr(ferry._ferry, "clear", lambda array, stream: array.fill(0))
        monkeypatch.setitem(sys.modules, name, getattr(self, f"_{name}")())

    def called_as_on_gpu(self, exchange):
        """The CPU exchange, from now on with arrays of this framework."""
        exchange._on_cpu, exchange._device, exchange._framework = False, "cuda:0", self.name
        return exchange

    @contextlib.contextmanager
    def on(self, stream):
        before, self.stream = self.stream, int(stream)  # not who owns it
        try:
            yield
        finally:
            self.stream = before

    def _empty(self, shape, dtype, device=None):
        self.made.append(self.stream)
        return np.empty(shape, dtype)

    def _torch(self):
        names = ("uint8", "int32", "int64", "float16", "float32", "float64")
        cuda = types.SimpleNamespace(
            current_device=lambda: 0, stream=self.on, default_stream=lambda device: 0,
            ExternalStream=lambda number, device: number if number > 1 else 100 + number,  # 0 and 1: another one
            is_current_stream_capturing=lambda: self.stream in self.captured)
        return types.SimpleNamespace(Tensor=Array, cuda=cuda, empty=self._empty, bfloat16="uint16",
                                     **{name: name for name in names})

    def _cupy(self):
        cuda = types.SimpleNamespace(
            Device=contextlib.nullcontext, ExternalStream=self.on,
            get_current_stream=lambda: types.SimpleNamespace(ptr=self.stream),
            runtime=types.SimpleNamespace(streamIsCapturing=lambda number: number in self.captured))
        return types.SimpleNamespace(ndarray=Array, cuda=cuda, empty=self._empty)


class Array(np.ndarray):
    """The array of such a framework. It says that it lies on a GPU."""

    def __dlpack_device__(self):
        return 2, 0
