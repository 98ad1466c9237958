// HeapDirectory: how ranks of one process get hold of each other's heaps when an exchange is made.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "exchange/sizes/sizes.h"
#include "ferry/world.h"

namespace ferry {

// One for all ranks of a world. `Heap` owns one rank's symmetric memory.
template <class Heap>
class HeapDirectory {
 public:
  // Collective over the ranks that the mask leaves in: everyone's heap in rank order, null for masked ranks. Each is
  // zero before another rank can see it (I13), and all ranks hold it (I16).
  std::vector<std::shared_ptr<Heap>> share_heaps(World& world, const std::shared_ptr<Heap>& mine,
                                                 const ExchangeOptions& options) {
    const std::uint64_t number = add(mine);
    std::vector<std::uint64_t> numbers(static_cast<std::size_t>(world.size()));
    world.all_gather(std::as_bytes(std::span(&number, 1)), std::as_writable_bytes(std::span(numbers)), options.mask,
                     set_up_deadline(options));
    std::vector<std::shared_ptr<Heap>> all(numbers.size());
    for (std::size_t rank = 0; rank < numbers.size(); ++rank)
      if (numbers[rank] != 0) all[rank] = find(numbers[rank]);
    world.barrier(options.mask, set_up_deadline(options));  // all hold all before one may let its own go
    forget(number);
    return all;
  }

 private:
  std::uint64_t add(const std::shared_ptr<Heap>& memory) {
    const std::lock_guard lock(guard_);
    memories_[++last_] = memory;
    return last_;
  }
  std::shared_ptr<Heap> find(std::uint64_t number) {
    const std::lock_guard lock(guard_);
    return memories_[number].lock();
  }
  void forget(std::uint64_t number) {
    const std::lock_guard lock(guard_);
    memories_.erase(number);
  }

  std::mutex guard_;
  std::map<std::uint64_t, std::weak_ptr<Heap>> memories_;
  std::uint64_t last_ = 0;
};

}  // namespace ferry
