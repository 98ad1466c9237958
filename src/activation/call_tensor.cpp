#include "ferry/detail/activation/call_tensor.h"

#include <fmt/core.h>

#include <cstdint>
#include <utility>

#include "ferry/error.h"

namespace ferry::activation {
namespace {

template <class... Arguments>
[[noreturn]] void refuse(const char* call, fmt::format_string<Arguments...> text, Arguments&&... arguments) {
  throw Error(ErrorKind::invalid_argument,
              fmt::format("{}: {}", call, fmt::format(text, std::forward<Arguments>(arguments)...)));
}

}  // namespace

void require_tensor(const char* call, const char* name, const ConstTensor& tensor, const ConstTensor& expected) {
  if (!tensor) refuse(call, "{} is not given; it must be {}", name, to_string(expected));
  bool same = tensor.dtype == expected.dtype && tensor.rank == expected.rank;
  for (int axis = 0; same && axis < expected.rank; ++axis) same = tensor.shape[axis] == expected.shape[axis];
  if (!same) refuse(call, "{} is {}; it must be {}", name, to_string(tensor), to_string(expected));
  if (!tensor.is_contiguous()) refuse(call, "{} is {} with gaps; it must be contiguous", name, to_string(tensor));
  const auto address = reinterpret_cast<std::uintptr_t>(tensor.data);
  if (address % size_of(expected.dtype) != 0)
    refuse(call, "{} starts at {:#x}; its address must be a multiple of {}", name, address, size_of(expected.dtype));
}

void require_vector_start(const char* call, const char* name, const ConstTensor& tensor) {
  const auto address = reinterpret_cast<std::uintptr_t>(tensor.data);
  if (address % 16 != 0)
    refuse(call, "{} starts at {:#x}; on a GPU its address must be a multiple of 16", name, address);
}

}  // namespace ferry::activation
