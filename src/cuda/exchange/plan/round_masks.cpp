#include "cuda/exchange/plan/round_masks.h"

#include "cuda/device/device_memory.h"
#include "ferry/detail/cuda/launch/launch.h"
#include "ferry/detail/cuda/state/cuda_check.h"
#include "ferry/detail/protocol/contracts/round.h"

namespace ferry::cuda {

void RoundMasks::add(const RankMask& more) {
  std::vector<std::uint8_t> grown = newest_;
  for (std::size_t peer = 0; peer < grown.size(); ++peer)
    if (is_masked(more, static_cast<int>(peer))) grown[peer] = 1;
  if (grown == newest_) return;
  std::vector<std::uint8_t> words = grown;
  for (const std::uint8_t each : grown) words.push_back(each != 0 ? kMaskedInReplay : std::uint8_t{0});
  SideStream stream;
  cuda_check(cudaMemcpyAsync(next_, words.data(), words.size(), cudaMemcpyHostToDevice, stream.get()),
             "cudaMemcpyAsync");
  stream.wait();
  newest_ = std::move(grown);
  newest_words_ = next_;
  next_ += words.size();
}

}  // namespace ferry::cuda
