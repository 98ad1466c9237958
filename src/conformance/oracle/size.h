// Counts and indices are int64 in tensors and size_t in the standard library.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ferry::test {

inline std::size_t size(std::int64_t value) { return static_cast<std::size_t>(value); }

}  // namespace ferry::test
