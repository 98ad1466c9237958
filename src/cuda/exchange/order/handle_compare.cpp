#include "cuda/exchange/order/handle_compare.h"

#include <vector>

#include "cuda/device/device_memory.h"
#include "ferry/detail/cuda/state/cuda_check.h"

namespace ferry::cuda {
OtherHandle read_other_handle(const PeerLinks& links, const RoundMasks& masks) {
  const auto count = static_cast<std::size_t>(links.size);
  std::vector<SignalWord> words(2 * count);
  {
    const SideStream stream;
    const auto read = [&](SignalWord* to, std::size_t from) {
      cuda_check(
          cudaMemcpyAsync(to, links.own + from, count * sizeof(SignalWord), cudaMemcpyDeviceToHost, stream.get()),
          "cudaMemcpyAsync");
    };
    read(words.data(), links.dispatching_words);
    read(words.data() + count, links.combining_words);
    stream.wait();
  }
  const auto said_by = [&](int rank) {
    const auto at = static_cast<std::size_t>(rank);
    return CallWords{words[at].raw, words[count + at].raw};
  };
  for (int rank = 0; rank < links.size; ++rank) {
    if (masks.is_masked_in_newest(rank)) continue;
    if (const OtherHandle other = compare_calls(rank, said_by(rank), said_by(links.rank)); other.was_given())
      return other;
  }
  return {};
}

}  // namespace ferry::cuda
