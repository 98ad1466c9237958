// How the host of a rank that gave up reads its abort words. They lie in device memory, and peers may still write to
// them. So the copy is on a stream of its own that waits for no kernel of the exchange.
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <optional>
#include <thread>
#include <vector>

#include "cuda/device/device_memory.h"
#include "ferry/detail/layout/abort_word.h"
#include "ferry/error.h"

namespace ferry::cuda {

class AbortWaits {
 public:
  // `words`: one for each rank, in memory of the current device.
  AbortWaits(const SignalWord* words, int ranks, std::chrono::milliseconds patience)
      : words_(words), seen_(static_cast<std::size_t>(ranks)), until_(Clock::now() + patience) {
    try {
      stream_.emplace();
    } catch (const Error&) {
      cudaGetLastError();  // the words are not read then
    }
  }
  AbortWaits(const AbortWaits&) = delete;
  AbortWaits& operator=(const AbortWaits&) = delete;

  // Waits for the word of `rank`; 0 if it did not come in time, or if the device no longer answers.
  Epoch word_of(int rank) {
    const SignalWord& word = seen_[static_cast<std::size_t>(rank)];
    while (word.raw == 0 && read() && word.raw == 0 && Clock::now() < until_)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return word.raw;
  }

  // The word of `rank` as it is now.
  Epoch word_now(int rank) {
    read();
    return seen_[static_cast<std::size_t>(rank)].raw;
  }

 private:
  using Clock = std::chrono::steady_clock;
  bool read() {
    if (!stream_) return false;
    const bool ok = cudaMemcpyAsync(seen_.data(), words_, seen_.size() * sizeof(SignalWord), cudaMemcpyDeviceToHost,
                                    stream_->get()) == cudaSuccess &&
                    cudaStreamSynchronize(stream_->get()) == cudaSuccess;
    if (!ok) cudaGetLastError();
    return ok;
  }

  const SignalWord* words_;
  std::vector<SignalWord> seen_;
  Clock::time_point until_;
  std::optional<SideStream> stream_;
};

}  // namespace ferry::cuda
