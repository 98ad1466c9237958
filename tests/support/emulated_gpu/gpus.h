// The emulated GPUs that the runtime shows.
#pragma once

#include <cstddef>

namespace ferry::emulated {

struct Gpus {
  int count = 8;
  int multiprocessors = 2;                // of each; kernels have two blocks on one, or more
  std::size_t shared_bytes = 227 * 1024;  // that a block may have
};
// Takes effect for worlds and exchanges that are made later.
void set_gpus(const Gpus& gpus);

}  // namespace ferry::emulated
