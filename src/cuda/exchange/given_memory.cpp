// CudaSteps: the heaps are given back for a while. Their addresses stay, which captured graphs know. The words of this
// rank's own heap wait in host memory; the numbers of its calls lie in other memory, which stays.
#include "cuda/device/refuse.h"
#include "cuda/exchange/cuda_steps.h"
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

void CudaSteps::require_can_release() const {
  if (capture_of(stream_) != kNoCapture || streams_.is_captured())
    refuse(ErrorKind::out_of_order, rank_,
           "release and restore: the stream is being captured, and memory changes hands on the host; end the capture "
           "first");
}

// Graphs of this exchange may run on any stream.
void CudaSteps::finish_calls() {
  cuda_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  poll_calls();
}

void CudaSteps::give_back(const RankMask& mask) {
  if (heaps_.memory == nullptr) return ExchangeSteps::give_back(mask);
  std::vector<std::byte> words(word_bytes(plan_.map));
  copy_words(plan_.map, links_.own, words, cudaMemcpyDeviceToHost);
  const std::lock_guard lock(heaps_guard_);
  words_ = std::move(words);
  has_heaps_ = false;
  heaps_.memory->give_back(mask);
}

void CudaSteps::take_again(const RankMask& mask, std::chrono::milliseconds deadline) {
  heaps_.memory->take_again(mask, deadline);
}

// Where the words were never taken, because that failed, they are still there.
void CudaSteps::bring_words_back() {
  if (!words_.empty()) copy_words(plan_.map, links_.own, words_, cudaMemcpyHostToDevice);
  const std::lock_guard lock(heaps_guard_);
  words_ = {};
  has_heaps_ = true;
}

}  // namespace ferry::cuda
