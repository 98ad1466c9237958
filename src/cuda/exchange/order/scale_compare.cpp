#include "cuda/exchange/order/scale_compare.h"

#include <vector>

#include "cuda/device/device_memory.h"
#include "ferry/detail/cuda/state/cuda_check.h"

namespace ferry::cuda {

OtherScale read_other_scale(const PeerLinks& links, const HeapMap& map, const RoundMasks& masks) {
  const auto ranks = static_cast<std::size_t>(links.size);
  std::vector<SignalWord> words(HeapMap::kScaleCopies * ranks);
  {
    const SideStream stream;
    cuda_check(cudaMemcpyAsync(words.data(), links.own + map.input_scale(0, 0), words.size() * sizeof(SignalWord),
                               cudaMemcpyDeviceToHost, stream.get()),
               "cudaMemcpyAsync");
    stream.wait();
  }
  OtherScale newest;
  for (std::size_t copy = 0; copy < HeapMap::kScaleCopies; ++copy) {
    const SignalWord* const said = words.data() + copy * ranks;
    const Epoch mine = said[links.rank].raw;
    for (int rank = 0; rank < links.size; ++rank) {
      if (masks.is_masked_in_newest(rank) || !is_of_other_scale(said[rank].raw, mine)) continue;
      const OtherScale other = OtherScale::of(rank, said[rank].raw, mine);
      const bool is_newer = static_cast<std::int32_t>(other.dispatch - newest.dispatch) > 0;
      if (!newest.was_given() || is_newer) newest = other;
    }
  }
  return newest;
}

}  // namespace ferry::cuda
