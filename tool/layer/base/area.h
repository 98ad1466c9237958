// Elements or bytes of a matrix, as the standard library counts them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ferry::app {

inline std::size_t area(std::int64_t rows, std::int64_t columns) {
  return static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns);
}

}  // namespace ferry::app
