// RoundMasks: the masks of an exchange's rounds, in device memory (I11). Each mask has memory of its own, which is
// written before any kernel gets it and never again. So a captured graph keeps the mask of its capture. Each comes
// twice, the second time as dispatches with a handle need it (kMaskedInReplay).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ferry/exchange.h"

namespace ferry::cuda {

class RoundMasks {
 public:
  // Each mask contains the one before it, and none names this rank. So there are at most as many as ranks.
  static std::size_t bytes(int ranks) { return 2 * static_cast<std::size_t>(ranks) * static_cast<std::size_t>(ranks); }

  RoundMasks() = default;
  // `memory`: bytes(ranks) of the current device. At first no rank is masked.
  RoundMasks(int ranks, std::uint8_t* memory) : newest_(static_cast<std::size_t>(ranks)), next_(memory) {}

  // Adds `more` to the newest mask. Waits for a copy to the current device but for no kernel, also during a capture.
  void add(const RankMask& more);
  // [ranks], for kernels; null: no rank is masked.
  const std::uint8_t* newest() const { return newest_words_; }
  const std::uint8_t* newest_of_replays() const {
    return newest_words_ != nullptr ? newest_words_ + newest_.size() : nullptr;
  }
  bool is_masked_in_newest(int rank) const { return newest_[static_cast<std::size_t>(rank)] != 0; }

 private:
  std::vector<std::uint8_t> newest_;
  const std::uint8_t* newest_words_ = nullptr;  // of newest_
  std::uint8_t* next_ = nullptr;                // for the next mask
};

}  // namespace ferry::cuda
