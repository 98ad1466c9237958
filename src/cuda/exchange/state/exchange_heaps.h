// ExchangeHeaps: the symmetric memory of all ranks, as the host of one rank uses it. It stores words at the others from
// any thread. For a while it gives the memory back, or leaves it to another exchange. The addresses stay, which
// captured graphs know. The words of this rank's own heap wait in host memory; the numbers of its calls lie in other
// memory, which stays.
#pragma once

#include <chrono>
#include <cstddef>
#include <mutex>
#include <vector>

#include "cuda/device/heap_memory.h"
#include "cuda/exchange/state/exchange_state.h"

namespace ferry::cuda {

class ExchangeHeaps {
 public:
  // `state` is of the same heaps. `masked`: ranks that do not share this exchange.
  ExchangeHeaps(const ExchangeState& state, GpuHeaps heaps, const RankMask& masked);
  // Frees them later.
  void free_with(DeferredFree& deferred);

  bool is_shared_with(int rank) const;
  // Stores this rank's abort word at all ranks, itself included. While the words are away it stores nothing: no kernel
  // waits.
  void tell_all(Epoch word) const;

  // Exchange::release, restore and take_memory:
  bool can_be_given_back() const { return heaps_.memory != nullptr; }
  void give_back(const RankMask& mask, std::size_t bytes);
  void take_again(const RankMask& mask, std::chrono::milliseconds deadline);
  void leave(bool keeps);
  void bring_words_back();
  void hold();
  bool have_words() const { return has_words_; }
  std::size_t given_back() const { return given_back_; }  // bytes
  const GpuHeaps& all() const { return heaps_; }

 private:
  const ExchangeState& state_;
  GpuHeaps heaps_;
  const RankMask masked_;
  mutable std::mutex guard_;  // an abort, from any thread, reads has_words_
  bool has_words_ = true;
  std::size_t given_back_ = 0;    // bytes
  bool had_words_ = true;         // where they are away: else they are zero
  std::vector<std::byte> words_;  // all but slots of the own heap, while they are away
};

}  // namespace ferry::cuda
