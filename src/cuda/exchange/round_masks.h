// RoundMasks: the masks of an exchange's rounds, as its kernels read them (I11). Each has memory of its own, which is
// written before any kernel is given it and never again: a captured graph keeps the mask of its capture.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ferry/exchange.h"

namespace ferry::cuda {

class RoundMasks {
 public:
  // A mask grows from one to the next, and the own rank is in none of them.
  static std::size_t bytes(int ranks) { return static_cast<std::size_t>(ranks) * static_cast<std::size_t>(ranks); }

  RoundMasks() = default;
  // `memory`: bytes(ranks) of the current device. Nobody is masked.
  RoundMasks(int ranks, std::uint8_t* memory) : newest_(static_cast<std::size_t>(ranks)), next_place_(memory) {}

  // The newest mask grows by `more`. Waits for a copy to the current device, but for no kernel, also during a capture.
  void add(const RankMask& more);
  // [ranks], for kernels; null: nobody is masked.
  const std::uint8_t* newest() const { return place_; }

 private:
  std::vector<std::uint8_t> newest_;
  const std::uint8_t* place_ = nullptr;
  std::uint8_t* next_place_ = nullptr;
};

}  // namespace ferry::cuda
