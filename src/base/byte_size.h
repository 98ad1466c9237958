// Sizes in the environment, as OpenSHMEM and NVSHMEM read them.
#pragma once

#include <cstddef>
#include <string_view>

namespace ferry {

// Bytes of "2G", "1.5g", "512MB", "1e9" or "4096": K, M, G and T are powers of 1024. 0 where the text is no such size.
std::size_t bytes_of_size(std::string_view text);

}  // namespace ferry
