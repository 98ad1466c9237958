// The weights of a rank's experts in the memory of its GPU.
#pragma once

#include <cstdint>
#include <vector>

#include "cuda/device/device_memory.h"
#include "tool/io/bfloat16.h"
#include "tool/layer/experts/expert_place.h"

namespace ferry::app {

// bf16 matrices of an expert. `inter` is padded with zeros (padded_inter).
struct DeviceMatrices {
  const Bf16* gate_up = nullptr;  // [2 * inter, hidden]: gate rows, then up rows
  const Bf16* down = nullptr;     // [hidden, inter]
  int inter = 0;
};

class DeviceWeights {
 public:
  // Copies and rounds the weights of every group, in the order of `stream`. The current device is the rank's.
  DeviceWeights(const ExpertsOfRank& of, const cuda::MemoryStream& stream);

  const DeviceMatrices& of_group(int group) const { return matrices_[static_cast<std::size_t>(group)]; }

  // Device memory, with what copying takes.
  static std::uint64_t bytes(const ExpertsOfRank& of);

 private:
  class Loader;

  cuda::StreamMemory memory_;
  std::vector<DeviceMatrices> matrices_;
};

}  // namespace ferry::app
