"""Memory of numpy for what Ferry writes, and the names of element types."""

from __future__ import annotations

import sys
from typing import Any, Callable, Sequence

import numpy as np

from . import _ferry
from ._errors import InvalidArgument

#: An array of numpy, or of anything else that has DLPack or the buffer protocol, where the exchange's arrays lie.
Array = Any
#: allocate(name, shape, dtype) of a caller.
Allocate = Callable[[str, "tuple[int, ...]", str], Array]

_PLAIN = {"u8": "uint8", "i32": "int32", "u32": "uint32", "i64": "int64", "f16": "float16", "f32": "float32",
          "f64": "float64"}
_GPUS = (2, 13)  # DLPack's numbers of memory of NVIDIA GPUs, and of managed memory
_ALIASES = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}


def bf16() -> np.dtype[Any]:
    """ml_dtypes.bfloat16 where ml_dtypes is installed, else uint16: the same bits."""
    try:
        import ml_dtypes
    except ImportError:
        return np.dtype(np.uint16)
    kind: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return kind


def dtype_named(name: str) -> np.dtype[Any]:
    """The type of numpy for a name of Ferry's: "u8", "i32", "u32", "i64", "f16", "bf16", "f32", "f64"."""
    return bf16() if name == "bf16" else np.dtype(_PLAIN[name])


def name_of_floats(dtype: Any, argument: str = "dtype") -> str:
    """"f32", "f16" or "bf16" of anything that names such a type: a type of numpy, torch or jax, or text.

    argument  what has the type, as an error says it
    """
    text = dtype if isinstance(dtype, str) else getattr(dtype, "name", None) or str(dtype)
    if not isinstance(dtype, str) and text.startswith("<class"):
        text = np.dtype(dtype).name
    text = text.rpartition(".")[2]
    name = _ALIASES.get(text, text)
    if name == "uint16":
        name = "bf16"
    if name not in ("f32", "f16", "bf16"):
        given = repr(dtype) if argument == "dtype" else text
        raise InvalidArgument(f"{argument} is {given}; it must be one of float32, float16, bfloat16")
    return name


def empty(shape: Sequence[int], dtype: str, alignment: int = 1) -> np.ndarray[Any, Any]:
    """Memory that is not initialised, its first element at a multiple of `alignment` bytes."""
    kind = dtype_named(dtype)
    size = kind.itemsize
    for extent in shape:
        size *= extent
    memory = np.empty(size + alignment, np.uint8)
    start = -memory.ctypes.data % alignment
    return memory[start:start + size].view(kind).reshape(tuple(shape))


def gpu_of(array: Array) -> str | None:
    """The GPU in whose memory the array lies, as "cuda:1"; None on the host."""
    place = getattr(array, "__dlpack_device__", None)
    if place is None:
        return None
    kind, index = place()
    return f"cuda:{int(index)}" if kind in _GPUS else None


def on_host(array: Array, stream: int = 0) -> np.ndarray[Any, Any]:
    """The array as numpy's. One on a GPU is copied, in the order of the stream, which the host waits for."""
    is_bf16 = "bfloat16" in str(getattr(array, "dtype", ""))
    if gpu_of(array) is not None:
        copy = np.asarray(_ferry.to_host(array, stream))
        return copy.view(bf16()) if is_bf16 else copy
    if is_bf16 and not isinstance(array, np.ndarray) and hasattr(array, "untyped_storage"):  # torch's, which numpy refuses
        codes: Any = array
        return np.asarray(codes.view(sys.modules["torch"].int16)).view(bf16())
    return np.asarray(array)


def in_f32(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Floats of any width as f32; uint16 are the bits of bf16."""
    if array.dtype == np.uint16:
        bits: np.ndarray[Any, Any] = array.astype(np.uint32) << 16
        return bits.view(np.float32)
    return array.astype(np.float32)


def counted(stats: dict[str, Any]) -> dict[str, Any]:
    """The statistics of an exchange, with arrays in place of lists."""
    for name in ("received_tokens", "received_bytes", "messages_sent", "bytes_sent", "waited_ns"):
        stats[name] = np.array(stats[name], np.uint64)
    for name in ("received_tokens", "received_bytes"):
        stats[name] = stats[name].reshape(len(stats["messages_sent"]), -1)
    return stats
