// SwiGLU kernels for the rows of a dispatch: gate and up in, one activated row out, stored as bf16 or encoded.
#pragma once

#include "ferry/tensor.h"
#include "ferry/token_format.h"

namespace ferry {

struct SwigluOptions {
  bool interleaved = false;   // input columns g0 u0 g1 u1 ... instead of all gates, then all ups
  bool clamped = false;       // g' = min(g, limit), u' = clamp(u, -limit, limit), (u' + 1) * g' * sigmoid(alpha * g')
  float alpha = 1.702f;       // clamped only
  float limit = 7.0f;         // clamped only
  bool tiled_scales = false;  // mxfp8 only, as in ExchangeOptions
};

struct SwigluInput {
  ConstTensor rows{};            // bf16, f16 or f32 [row_capacity, 2 * inter], contiguous
  ConstTensor row_offsets{};     // u32 [groups + 1], as dispatch wrote it; rows past its last value are not activated
  ConstTensor scales_offsets{};  // u32 [groups]; tiled scales only
  ConstTensor input_scales{};    // nvfp4: f32 [groups], one per group, each finite and > 0; not given: 1
};

struct SwigluOutput {
  Tensor payload{};  // u8 [row_capacity, payload bytes of `inter` columns], or bf16 [row_capacity, inter]
  Tensor scales{};   // in the format's layout for `inter` columns, as a dispatch would write it; not given for bf16
};

// Activates the rows that row_offsets says exist, into `format`. inter is a multiple of 32. Host memory: a tensor whose
// `device` is a GPU is refused. Throws Error(invalid_argument) that names the argument, before anything is written.
void swiglu(const AnyFormat& format, const SwigluInput& in, const SwigluOutput& out, const SwigluOptions& options = {});

}  // namespace ferry
