"""Memory of torch for what Ferry's calls write."""

from __future__ import annotations

import functools
from typing import Any, Callable, Dict, Optional, Sequence

import torch

from .._outputs import Shape, Spec, strides_of

#: Offsets are u32; i32, which torch computes with, is the same bits below 2^31 rows.
TYPES: Dict[str, torch.dtype] = {
    "u8": torch.uint8, "i32": torch.int32, "u32": torch.int32, "i64": torch.int64, "f16": torch.float16,
    "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64}
_MakeStrided = Callable[[Shape, Shape, torch.dtype], torch.Tensor]


class Memory:
    """Makes tensors on one device: plain ones, each with memory of its own, at a multiple of 64 bytes or more.

    A call makes up to six, and torch.empty takes longer to read its arguments than to find memory. What compiled code of
    torch calls in its place takes less than half as long. It is not public: where it is not there, or makes something
    else, torch.empty does all.
    """

    def __init__(self, device: torch.device) -> None:
        self._device, self._quick = device, _quick(device.type)
        self._gpu = device.index if device.type == "cuda" else None

    def empty(self, specs: Sequence[Spec]) -> dict[str, torch.Tensor]:
        """{name: tensor}, not initialised.

        A handle has gaps. They are zeros, so that handles of one routing differ in its number alone.
        """
        make = self._quick
        if (make is None or torch.are_deterministic_algorithms_enabled()  # then torch.empty fills what it makes
                or self._gpu is not None and self._gpu != torch.cuda.current_device()):
            made = {name: torch.empty(*shape, dtype=TYPES[dtype], device=self._device)  # a tuple takes longer
                    for name, shape, dtype, *_ in specs}
        else:
            made = {name: make(shape, strides, TYPES[dtype]) for name, shape, dtype, _, strides in specs}
        if "handle" in made:
            made["handle"].zero_()
        return made


@functools.lru_cache(maxsize=None)
def _quick(kind: str) -> Optional[_MakeStrided]:
    """What makes memory on the current device of that kind, "cpu" or "cuda"; None: torch has nothing that does.

    It is tried on the CPU alone: a GPU gives no memory while kernels of other ranks wait for this one.
    """
    guards: Any = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
    on_cpu: Optional[_MakeStrided] = getattr(guards, "_empty_strided_cpu", None)
    tried = (((3, 4), torch.bfloat16), ((0, 4), torch.uint8), ((5,), torch.int32))
    if on_cpu is None or not all(_is_right(on_cpu, shape, dtype) for shape, dtype in tried):
        return None
    return getattr(guards, f"_empty_strided_{kind}", None)


def _is_right(make: _MakeStrided, shape: Shape, dtype: torch.dtype) -> bool:
    try:
        made = make(shape, strides_of(shape), dtype)
        return (type(made) is torch.Tensor and made.shape == shape and made.stride() == strides_of(shape)
                and made.dtype == dtype and made.device.type == "cpu" and made.layout == torch.strided)
    except (AttributeError, RuntimeError, TypeError, ValueError):
        return False
