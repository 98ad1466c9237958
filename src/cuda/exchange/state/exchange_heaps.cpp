#include "cuda/exchange/state/exchange_heaps.h"

#include <memory>
#include <utility>

#include "exchange/sizes/heap_pieces.h"
#include "ferry/detail/cuda/state/cuda_check.h"

namespace ferry::cuda {
namespace {

// Copies all but slots between `heap` and `words`, in which they lie one behind the other.
void copy_words(const HeapMap& map, std::byte* heap, std::vector<std::byte>& words, cudaMemcpyKind kind) {
  std::size_t at = 0;
  const SideStream stream;
  for (const HeapPiece& piece : heap_pieces(map, false)) {
    std::byte* on_device = heap + piece.begin;
    std::byte* on_host = words.data() + at;
    const bool to_device = kind == cudaMemcpyHostToDevice;
    cuda_check(cudaMemcpyAsync(to_device ? on_device : on_host, to_device ? on_host : on_device, piece.bytes, kind,
                               stream.get()),
               "cudaMemcpyAsync");
    at += piece.bytes;
  }
  stream.wait();
}

std::size_t word_bytes(const HeapMap& map) {
  std::size_t bytes = 0;
  for (const HeapPiece& piece : heap_pieces(map, false)) bytes += piece.bytes;
  return bytes;
}

}  // namespace

ExchangeHeaps::ExchangeHeaps(const ExchangeState& state, GpuHeaps heaps, const RankMask& masked)
    : state_(state), heaps_(std::move(heaps)), masked_(masked) {}

void ExchangeHeaps::free_with(DeferredFree& deferred) { deferred.keep(std::make_shared<GpuHeaps>(std::move(heaps_))); }

bool ExchangeHeaps::is_shared_with(int rank) const { return !is_masked(masked_, rank); }

// Kernels that run look for these words while they wait. So the copies are on a stream that waits for no kernel.
void ExchangeHeaps::tell_all(Epoch word) const {
  const std::lock_guard lock(guard_);
  if (!has_words_) return;
  const RankDevice& device = state_.device();
  const PeerLinks& links = state_.links();
  const DeviceScope scope(device.index);
  const SideStream stream;
  for (int peer = 0; peer < links.size; ++peer) {
    if (!is_shared_with(peer)) continue;
    if (std::byte* const heap = heaps_.all[static_cast<std::size_t>(peer)].get(); heap != nullptr)
      cuda_check(cudaMemcpyAsync(heap + links.own_abort_word(), &word, sizeof word, cudaMemcpyDefault, stream.get()),
                 "cudaMemcpyAsync");
    else if (device.put_word)
      device.put_word(peer, links.own + links.own_abort_word(), word);
  }
  stream.wait();
}

void ExchangeHeaps::leave(bool keeps) {
  const HeapMap& map = state_.plan().map;
  std::vector<std::byte> words(keeps ? word_bytes(map) : 0);
  if (keeps) copy_words(map, state_.links().own, words, cudaMemcpyDeviceToHost);
  const std::lock_guard lock(guard_);
  words_ = std::move(words);
  had_words_ = keeps;
  has_words_ = false;
}

void ExchangeHeaps::give_back(const RankMask& mask, std::size_t bytes) {
  leave(true);
  given_back_ = bytes;
  heaps_.memory->give_back(mask);
}

void ExchangeHeaps::take_again(const RankMask& mask, std::chrono::milliseconds deadline) {
  heaps_.memory->take_again(mask, deadline);
}

// Where the words never left, because that failed, they are still there.
void ExchangeHeaps::bring_words_back() {
  const HeapMap& map = state_.plan().map;
  if (!words_.empty()) copy_words(map, state_.links().own, words_, cudaMemcpyHostToDevice);
  if (had_words_) return;
  const SideStream stream;
  for (const HeapPiece& piece : heap_pieces(map, false))
    cuda_check(cudaMemsetAsync(state_.links().own + piece.begin, 0, piece.bytes, stream.get()), "cudaMemsetAsync");
  stream.wait();
}

void ExchangeHeaps::hold() {
  const std::lock_guard lock(guard_);
  words_ = {};
  had_words_ = has_words_ = true;
  given_back_ = 0;
}

}  // namespace ferry::cuda
