"""SwiGLU on the rows of a dispatch."""

from __future__ import annotations

from typing import Any, Sequence

import numpy as np

from . import _ferry, _frameworks
from ._arguments import flag
from ._arrays import Array, empty, gpu_of
from ._errors import InvalidArgument
from .formats import Format, format_named


def swiglu(rows: Array, row_offsets: Array, *, format: str | Format = "bf16", scales_offsets: Array | None = None,
           input_scales: Array | None = None, interleaved: bool = False,
           clamp: tuple[float, float] | None = None, tiled_scales: bool = False, stream: Any = None
           ) -> tuple[Array, Array | None]:
    """Activates rows, and encodes them: silu(gate) * up.

    rows            bf16, f16 or f32 [row_capacity, 2 * inter], contiguous: all gates, then all ups; interleaved: g0 u0
                    g1 u1 ...
    row_offsets     u32 [groups + 1], as dispatch wrote it: rows past its last value are not activated
    scales_offsets  u32 [groups]; tiled scales only
    input_scales    nvfp4: f32 [groups]; None: 1
    clamp           (alpha, limit): g' = min(g, limit), u' = clamp(u, -limit, limit), (u' + 1) g' sigmoid(alpha g')
    stream          on a GPU, as of Exchange

    Returns (payload, scales): payload u8 [row_capacity, bytes of a row], or bf16 [row_capacity, inter] for bf16; scales
    in the format's layout, None for bf16. Rows that are not activated are zeros. Raises InvalidArgument.

    Where rows lie on a GPU all arrays do, of torch or cupy as rows are. One kernel is enqueued, which may be captured.
    The first call of a format loads it, and CUDA may wait for kernels that run: call it once before the first round.
    """
    encoding = format if isinstance(format, Format) else format_named(format)
    interleaved, tiled_scales = flag("interleaved", interleaved), flag("tiled_scales", tiled_scales)
    shape = np.shape(rows)
    if len(shape) != 2 or shape[1] < 64 or shape[1] % 64 != 0:
        raise InvalidArgument(f"rows has shape {list(shape)}; it must be [row_capacity, 2 * inter] with inter a multiple of 32")
    capacity, inter = int(shape[0]), int(shape[1]) // 2
    gpu = gpu_of(rows)
    framework = _frameworks.framework_of(rows)
    number = 0 if gpu is None else _frameworks.stream_number(stream, framework, gpu)

    def zeros(of: Sequence[int], dtype: str) -> Array:
        if gpu is None:
            memory = empty(of, dtype, 16)
            memory.view(np.uint8).fill(0)
            return memory
        with _frameworks.on_stream(framework, number, gpu):
            array = _frameworks.empty(framework, of, dtype, gpu)
        _ferry.clear(array, number)
        return array

    is_bf16 = encoding.name == "bf16"
    payload = zeros((capacity, inter if is_bf16 else encoding.payload_bytes(inter)), "bf16" if is_bf16 else "u8")
    inputs = {"rows": rows, "row_offsets": row_offsets, "scales_offsets": scales_offsets, "input_scales": input_scales}
    outputs: dict[str, Any] = {"payload": payload}
    scales = None
    if encoding.scale_bytes:
        groups = int(np.shape(row_offsets)[0]) - 1
        of_scales = _ferry.swiglu_scales_shape(encoding.name, inter, capacity, groups, tiled_scales)
        scales = outputs["scales"] = zeros(of_scales, encoding.scale_dtype)
    _ferry.swiglu(encoding.name, inputs, outputs, clamp, interleaved, tiled_scales, number)
    return payload, scales
