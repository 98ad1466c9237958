"""Memory and streams on GPUs, of the framework whose arrays came in. Nothing here imports a framework."""

from __future__ import annotations

import contextlib
import sys
from typing import Any, ContextManager, Sequence

from . import _ferry

#: Names of Ferry for what torch can compute with: offsets are u32, and i32 is the same bits below 2^31 rows.
_TORCH = {"u8": "uint8", "i32": "int32", "u32": "int32", "i64": "int64", "f16": "float16", "bf16": "bfloat16",
          "f32": "float32", "f64": "float64"}
#: cupy has no bf16: the same bits as uint16, as in numpy.
_CUPY = {"u8": "uint8", "i32": "int32", "u32": "uint32", "i64": "int64", "f16": "float16", "bf16": "uint16",
         "f32": "float32", "f64": "float64"}
_ARRAYS = (("torch", "Tensor"), ("cupy", "ndarray"))
_AS_IT_IS: ContextManager[None] = contextlib.nullcontext()


def framework_of(array: Any) -> str:
    """"torch" or "cupy" where the array is of one that Ferry makes memory with, or of a class of anybody that inherits
    from its arrays, else ""."""
    for name, kind in _ARRAYS:
        module = sys.modules.get(name)
        if module is not None and isinstance(array, getattr(module, kind, ())):  # () while it is being imported
            return name
    return ""


def index_of(device: str) -> int:
    """The number of a GPU: 1 of "cuda:1"."""
    return int(device.partition(":")[2])


def empty(framework: str, shape: Sequence[int], dtype: str, device: str) -> Any:
    """Memory on a GPU that is not initialised. Raises TypeError where it is not known who is to make it."""
    if framework == "torch":
        torch = sys.modules["torch"]
        return torch.empty(tuple(shape), dtype=getattr(torch, _TORCH[dtype]), device=device)
    if framework == "cupy":
        cupy = sys.modules["cupy"]
        with cupy.cuda.Device(index_of(device)):
            return cupy.empty(tuple(shape), _CUPY[dtype])
    raise TypeError(f"who is to make memory on {device}? Ferry does it with torch or cupy where an argument of the call "
                    "is theirs; else give allocate to the Exchange, arrays as outputs and out, or like")


def on_stream(framework: str, number: int, device: str) -> ContextManager[Any]:
    """In this context memory that the framework makes is for work on that stream of the GPU.

    Memory comes from the pool of a stream: elsewhere work that was enqueued there may still read what it had freed.
    """
    if framework == "torch":
        return _AS_IT_IS if number == current_stream(index_of(device)) else _on_stream_of_torch(number, device)
    if framework == "cupy" and number != _current_stream(framework, device):
        cuda = sys.modules["cupy"].cuda
        stack = contextlib.ExitStack()
        stack.enter_context(cuda.Device(index_of(device)))
        stack.enter_context(cuda.ExternalStream(number))
        return stack
    return _AS_IT_IS


def _on_stream_of_torch(number: int, device: str) -> ContextManager[Any]:
    cuda = sys.modules["torch"].cuda
    # torch takes 0, or 1 for cudaStreamLegacy, as an external stream for one of its own pool.
    stream = cuda.default_stream(device) if number in (0, 1) else cuda.ExternalStream(number, device=device)
    found: ContextManager[Any] = cuda.stream(stream)
    return found


def is_capturing(framework: str, number: int, device: str) -> bool:
    """Whether the stream is captured in a graph, as the framework says it. False without one: nobody knows."""
    if framework == "torch":
        cuda, index = sys.modules["torch"].cuda, index_of(device)
        is_current = number == current_stream(index) and cuda.current_device() == index
        with _AS_IT_IS if is_current else _on_stream_of_torch(number, device):
            return bool(cuda.is_current_stream_capturing())
    if framework == "cupy":
        return bool(sys.modules["cupy"].cuda.runtime.streamIsCapturing(int(number)))
    return False


def taken(framework: str, view: Any) -> Any:
    """A view of DLPack as an array of the framework."""
    return sys.modules[framework].from_dlpack(view) if framework else view


class StreamNumber(int):
    """A stream as CUDA numbers it. While the number lives, so does the object that destroys the stream."""

    def __new__(cls, number: int, owner: Any) -> StreamNumber:
        made = super().__new__(cls, number)
        made.owner = owner
        return made

    owner: Any


def stream_number(stream: Any, framework: str, device: str) -> int:
    """A stream as CUDA numbers it. None: the framework's current one of that device, else the default stream.

    Takes an int, and what has __cuda_stream__, cuda_stream (torch) or ptr (cupy).
    """
    if type(stream) is int or type(stream) is StreamNumber:
        return stream
    if stream is None:
        return _current_stream(framework, device)
    if hasattr(stream, "__cuda_stream__"):
        pair = stream.__cuda_stream__
        return StreamNumber((pair() if callable(pair) else pair)[1], stream)
    for name in ("cuda_stream", "ptr", "__index__"):
        if hasattr(stream, name):
            number = getattr(stream, name)
            return StreamNumber(number() if callable(number) else number, stream)
    raise TypeError(f"stream is {stream!r}; it must be a number, or a stream of torch or cupy, or have __cuda_stream__")


def current_stream(index: int) -> int:
    """torch's current stream of a GPU. DLPack's table says it in a tenth of the time that torch's own call takes."""
    number = _ferry.torch_stream(index)
    return number if number is not None else int(sys.modules["torch"].cuda.current_stream(index).cuda_stream)


def _current_stream(framework: str, device: str) -> int:
    if framework == "torch":
        return current_stream(index_of(device))
    if framework == "cupy":
        cupy = sys.modules["cupy"]
        with cupy.cuda.Device(index_of(device)):
            stream = cupy.cuda.get_current_stream()
            return StreamNumber(stream.ptr, stream)
    return 0
