// Short handles in host memory: made of whole ones, and whole ones of them. GPUs restate it in
// ferry/detail/cuda/kernels/handles/short_handle_kernels.cuh.
#pragma once

#include <cstddef>

#include "exchange/checks/validate.h"
#include "ferry/detail/protocol/contracts/short_handle.h"

namespace ferry {

// I22: makes `to`, memory of `bytes` bytes, a short handle of `whole`, which is good. Returns how many bytes that
// takes: where there are fewer, only the first word of `to` is written, and says so.
std::size_t shorten_handle(const Plan& plan, const std::byte* whole, std::byte* to, std::size_t bytes);

// I22: makes `whole` of a short handle that check_handle_tensor has taken. Throws Error(invalid_argument) where its
// parts do not fit together. check_handle says whether `whole` is good.
void lengthen_handle(const CheckContext& context, const Plan& plan, const ConstTensor& handle, std::byte* whole);

}  // namespace ferry
