// MemoryPlace: the place of an exchange in the symmetric memory of its rank, where others may lie, too. One of them has
// the memory: only that one reads and writes there.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "ferry/world.h"

namespace ferry {

template <class Front>
struct LaidMemory {
  std::size_t bytes = 0;
  RankMask made_without{};       // ranks that never had a part in it
  RankMask masked{};             // and those that an exchange in it has masked since
  std::vector<Front*> fronts{};  // the oldest first
  Front* holder = nullptr;       // has the memory; null: none does
  // By an exchange that is gone.
  bool is_released = false;
  std::size_t given_back = 0;

  void add_to_mask(const RankMask& more) {
    for (std::size_t rank = 0; rank < masked.size(); ++rank) masked[rank] = masked[rank] || more[rank];
  }
  // I16: a rank that was masked since may still write there, as the exchange does that had the memory then.
  int find_lost() const {
    for (std::size_t rank = 0; rank < masked.size(); ++rank)
      if (masked[rank] && !is_masked(made_without, static_cast<int>(rank))) return static_cast<int>(rank);
    return -1;
  }
};

template <class Front>
class MemoryPlace {
 public:
  MemoryPlace(std::shared_ptr<LaidMemory<Front>> memory, Front& front) : memory_(std::move(memory)), front_(front) {
    memory_->fronts.push_back(&front_);
  }
  ~MemoryPlace() {
    std::erase(memory_->fronts, &front_);
    if (has_memory()) memory_->holder = nullptr;
  }
  MemoryPlace(const MemoryPlace&) = delete;
  MemoryPlace& operator=(const MemoryPlace&) = delete;

  bool has_memory() const { return memory_->holder == &front_; }
  bool counts_bytes() const { return memory_->fronts.front() == &front_; }
  const std::shared_ptr<LaidMemory<Front>>& memory() const { return memory_; }
  LaidMemory<Front>* operator->() const { return memory_.get(); }

 private:
  std::shared_ptr<LaidMemory<Front>> memory_;
  Front& front_;
};

}  // namespace ferry
