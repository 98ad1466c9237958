// Errors of the GPU backend on the host: a sentence with its values, behind the rank that says it.
#pragma once

#include <fmt/core.h>

#include <utility>

#include "ferry/error.h"

namespace ferry::cuda {

template <class... Args>
[[noreturn]] void refuse(ErrorKind kind, int rank, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(kind, fmt::format("rank {}: {}", rank, fmt::format(format, std::forward<Args>(args)...)));
}

}  // namespace ferry::cuda
