#include "shmem/process/shmem_arena.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>

#include "ferry/error.h"
#include "shmem/process/shmem_waits.h"

namespace ferry::cpu {

ShmemArena::ShmemArena(std::byte* memory, std::size_t bytes)
    : memory_(memory), bytes_(bytes / kAlignment * kAlignment), free_{{memory, bytes_}} {}

std::byte* ShmemArena::allocate(std::size_t bytes, std::chrono::milliseconds deadline) {
  const std::lock_guard lock(guard_);
  give_what_was_let_go();
  std::byte* block = take(rounded(bytes));
  while (block == nullptr && !retired_.empty()) {
    const Retired oldest = std::move(retired_.front());
    retired_.pop_front();
    ShmemPacer pacer(deadline);
    const auto never = [] { return false; };
    const bool is_free = std::all_of(oldest.let_go.begin(), oldest.let_go.end(), [&](const SignalWord* word) {
      return wait_at_least(*word, 1, never, pacer) == Waited::arrived;
    });
    if (is_free)
      give(oldest.block, oldest.bytes);
    else
      lost_ += oldest.bytes;
    block = take(rounded(bytes));
  }
  if (block == nullptr) refuse(bytes);
  return block;
}

void ShmemArena::retire(std::byte* block, std::size_t bytes, std::vector<const SignalWord*> let_go) {
  const std::lock_guard lock(guard_);
  retired_.push_back({block, rounded(bytes), std::move(let_go)});
}

void ShmemArena::lose(std::size_t bytes) {
  const std::lock_guard lock(guard_);
  lost_ += rounded(bytes);
}

// Best fit: the smallest free piece that is large enough, so that large pieces stay whole.
std::byte* ShmemArena::take(std::size_t bytes) {
  auto best = free_.end();
  for (auto piece = free_.begin(); piece != free_.end(); ++piece)
    if (piece->second >= bytes && (best == free_.end() || piece->second < best->second)) best = piece;
  if (best == free_.end()) return nullptr;
  std::byte* block = best->first;
  const std::size_t left = best->second - bytes;
  free_.erase(best);
  if (left != 0) free_[block + bytes] = left;
  return block;
}

void ShmemArena::give(std::byte* block, std::size_t bytes) {
  auto piece = free_.emplace(block, bytes).first;
  const auto after = std::next(piece);
  if (after != free_.end() && piece->first + piece->second == after->first) {
    piece->second += after->second;
    free_.erase(after);
  }
  if (piece == free_.begin()) return;
  const auto before = std::prev(piece);
  if (before->first + before->second != piece->first) return;
  before->second += piece->second;
  free_.erase(piece);
}

void ShmemArena::give_what_was_let_go() {
  std::erase_if(retired_, [this](const Retired& each) {
    const auto is_set = [](const SignalWord* word) { return load_acquire(*word) != 0; };
    if (!std::all_of(each.let_go.begin(), each.let_go.end(), is_set)) return false;
    give(each.block, each.bytes);
    return true;
  });
}

void ShmemArena::refuse(std::size_t bytes) const {
  std::size_t largest = 0;
  for (const auto& [block, size] : free_) largest = std::max(largest, size);
  throw Error(
      ErrorKind::system,
      fmt::format("the symmetric memory of {} bytes has no {} left in one piece (largest: {}; {} bytes are lost "
                  "to exchanges whose ranks went missing): start the processes with a larger "
                  "SHMEM_SYMMETRIC_HEAP_SIZE, or make max_tokens smaller",
                  bytes_, bytes, largest, lost_));
}

}  // namespace ferry::cpu
