"""SwiGLU on the rows of a dispatch."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import _ferry
from ._arrays import Array, empty
from .formats import Format, format_named


def swiglu(rows: Array, row_offsets: Array, *, format: str | Format = "bf16", scales_offsets: Array | None = None,
           input_scales: Array | None = None, interleaved: bool = False,
           clamp: tuple[float, float] | None = None, tiled_scales: bool = False
           ) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any] | None]:
    """Activates rows, and encodes them: silu(gate) * up.

    rows            bf16, f16 or f32 [row_capacity, 2 * inter], contiguous: all gates, then all ups; interleaved: g0 u0
                    g1 u1 ...
    row_offsets     u32 [groups + 1], as dispatch wrote it: rows past its last value are not activated
    scales_offsets  u32 [groups]; tiled scales only
    input_scales    nvfp4: f32 [groups]; None: 1
    clamp           (alpha, limit): g' = min(g, limit), u' = clamp(u, -limit, limit), (u' + 1) g' sigmoid(alpha g')

    Returns (payload, scales): payload u8 [row_capacity, bytes of a row], or bf16 [row_capacity, inter] for bf16; scales
    in the format's layout, None for bf16. Rows that are not activated are zeros. Raises InvalidArgument.
    """
    encoding = format if isinstance(format, Format) else format_named(format)
    shape = np.shape(rows)
    if len(shape) != 2 or shape[1] % 64 != 0:
        raise ValueError(f"rows has shape {list(shape)}; it must be [row_capacity, 2 * inter] with inter a multiple of 32")
    capacity, inter = int(shape[0]), int(shape[1]) // 2
    if encoding.name == "bf16":
        payload = empty((capacity, inter), "bf16", 16)
    else:
        payload = empty((capacity, encoding.payload_bytes(inter)), "u8", 16)
    payload.view(np.uint8).fill(0)
    inputs = {"rows": rows, "row_offsets": row_offsets, "scales_offsets": scales_offsets, "input_scales": input_scales}
    outputs: dict[str, Any] = {"payload": payload}
    scales = None
    if encoding.scale_bytes:
        groups = int(np.shape(row_offsets)[0]) - 1
        of_scales = _ferry.swiglu_scales_shape(encoding.name, inter, capacity, groups, tiled_scales)
        scales = empty(of_scales, encoding.scale_dtype, 16)
        scales.fill(0)
        outputs["scales"] = scales
    _ferry.swiglu(encoding.name, inputs, outputs, clamp, interleaved, tiled_scales)
    return payload, scales


