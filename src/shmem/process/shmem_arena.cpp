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
  std::byte* piece = take(rounded(bytes));
  while (piece == nullptr && !retired_.empty()) {
    const Retired oldest = std::move(retired_.front());
    retired_.pop_front();
    ShmemPacer pacer(deadline);
    const auto never = [] { return false; };
    const bool is_free = std::all_of(oldest.let_go.begin(), oldest.let_go.end(), [&](const SignalWord* word) {
      return wait_at_least(*word, 1, never, pacer) == Waited::arrived;
    });
    if (is_free)
      give(oldest.piece, oldest.bytes);
    else
      lost_ += oldest.bytes;
    piece = take(rounded(bytes));
  }
  if (piece == nullptr) refuse(bytes);
  return piece;
}

void ShmemArena::retire(std::byte* piece, std::size_t bytes, std::vector<const SignalWord*> let_go) {
  const std::lock_guard lock(guard_);
  retired_.push_back({piece, rounded(bytes), std::move(let_go)});
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
  std::byte* piece = best->first;
  const std::size_t left = best->second - bytes;
  free_.erase(best);
  if (left != 0) free_[piece + bytes] = left;
  return piece;
}

void ShmemArena::give(std::byte* piece, std::size_t bytes) {
  auto freed = free_.emplace(piece, bytes).first;
  const auto after = std::next(freed);
  if (after != free_.end() && freed->first + freed->second == after->first) {
    freed->second += after->second;
    free_.erase(after);
  }
  if (freed == free_.begin()) return;
  const auto before = std::prev(freed);
  if (before->first + before->second != freed->first) return;
  before->second += freed->second;
  free_.erase(freed);
}

void ShmemArena::give_what_was_let_go() {
  std::erase_if(retired_, [this](const Retired& each) {
    const auto is_set = [](const SignalWord* word) { return load_acquire(*word) != 0; };
    if (!std::all_of(each.let_go.begin(), each.let_go.end(), is_set)) return false;
    give(each.piece, each.bytes);
    return true;
  });
}

void ShmemArena::refuse(std::size_t bytes) const {
  std::size_t largest = 0;
  for (const auto& [piece, size] : free_) largest = std::max(largest, size);
  throw Error(
      ErrorKind::system,
      fmt::format("the symmetric memory of {} bytes has no {} left in one piece (largest: {}; {} bytes are lost "
                  "to exchanges whose ranks went missing): start the processes with a larger "
                  "SHMEM_SYMMETRIC_HEAP_SIZE, or make max_tokens smaller",
                  bytes_, bytes, largest, lost_));
}

}  // namespace ferry::cpu
