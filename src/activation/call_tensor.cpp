#include "ferry/detail/activation/call_tensor.h"

#include <fmt/core.h>

#include <cstdint>

#include "ferry/error.h"

namespace ferry::activation {

void refuse_call(const char* call, const std::string& why) {
  throw Error(ErrorKind::invalid_argument, fmt::format("{}: {}", call, why));
}

void require_tensor(const char* call, const char* name, const ConstTensor& tensor, const ConstTensor& expected) {
  if (!tensor) refuse_call(call, fmt::format("{} is not given; it must be {}", name, to_string(expected)));
  bool same = tensor.dtype == expected.dtype && tensor.rank == expected.rank;
  for (int axis = 0; same && axis < expected.rank; ++axis) same = tensor.shape[axis] == expected.shape[axis];
  if (!same) refuse_call(call, fmt::format("{} is {}; it must be {}", name, to_string(tensor), to_string(expected)));
  if (!tensor.is_contiguous())
    refuse_call(call, fmt::format("{} is {} with gaps; it must be contiguous", name, to_string(tensor)));
  const auto address = reinterpret_cast<std::uintptr_t>(tensor.data);
  if (address % size_of(expected.dtype) != 0)
    refuse_call(call, fmt::format("{} starts at {:#x}; its address must be a multiple of {}", name, address,
                                  size_of(expected.dtype)));
}

void require_vector_start(const char* call, const char* name, const ConstTensor& tensor) {
  const auto address = reinterpret_cast<std::uintptr_t>(tensor.data);
  if (address % 16 != 0)
    refuse_call(call, fmt::format("{} starts at {:#x}; on a GPU its address must be a multiple of 16", name, address));
}

}  // namespace ferry::activation
