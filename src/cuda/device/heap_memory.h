// HeapMemory: what lies behind the heaps of an exchange where it can be given back while the addresses stay.
#pragma once

#include <chrono>
#include <memory>
#include <utility>

#include "cuda/device/rank_device.h"
#include "ferry/world.h"

namespace ferry::cuda {

// Of one rank: its own memory, and the memory of the others as its device reaches it.
class HeapMemory {
 public:
  virtual ~HeapMemory() = default;
  // No kernel of any rank uses the heaps any more. Those of masked ranks stay: a captured graph may know an older mask.
  virtual void give_back(const RankMask& mask) = 0;
  // Collective: memory for each heap that has none, zeroed by its owner. It fails on all ranks or on none, and may be
  // called again.
  virtual void take_again(const RankMask& mask, std::chrono::milliseconds deadline) = 0;
};

// The heaps of all ranks, and what gives them back; null: nothing can.
struct GpuHeaps {
  GpuHeaps() = default;
  GpuHeaps(DeviceHeaps heaps, std::shared_ptr<HeapMemory> behind = nullptr)
      : all(std::move(heaps)), memory(std::move(behind)) {}
  DeviceHeaps all;
  std::shared_ptr<HeapMemory> memory;
};

}  // namespace ferry::cuda
