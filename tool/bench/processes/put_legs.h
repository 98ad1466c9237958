// Plain puts over memory that all ranks have: one to each rank, a fence, and a signal.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cpu/fabric/host_group.h"
#include "ferry/detail/base/order.h"
#include "ferry/detail/base/wait.h"
#include "ferry/error.h"
#include "tool/bench/processes/put_link.h"

namespace ferry::app {

// `Memory` is this rank's, with the same layout on every rank: rank(), local(offset), pointer(peer, offset), which is
// null where this rank cannot store there; then put(peer, offset, from, bytes), fence() and signal(peer, word, value)
// count. make_pacer() is for one wait.
template <class Memory>
class PutLegs final : public PutLink {
 public:
  // For each leg a buffer for what each rank puts here, then one to put from, or one for each rank.
  template <class MakeMemory>
  PutLegs(int ranks, std::vector<PutLeg> legs, std::size_t most_bytes, const MakeMemory& make)
      : ranks_(static_cast<std::size_t>(ranks)),
        legs_(std::move(legs)),
        most_bytes_((most_bytes + 127) / 128 * 128),
        words_((ranks_ * sizeof(SignalWord) + 127) / 128 * 128),
        memory_(make(words_ + 2 * legs_.size() * ranks_ * most_bytes_, words_)) {
    for (std::size_t leg = 0; leg < legs_.size(); ++leg)
      std::memset(memory_.local(source(leg, 0)), 1, (legs_[leg].same_for_all ? 1 : ranks_) * most_bytes_);
  }

  void exchange() override {
    const int mine = memory_.rank();
    const int ranks = static_cast<int>(ranks_);
    for (std::size_t leg = 0; leg < legs_.size(); ++leg) {
      ++turn_;
      for (int step = 1; step < ranks; ++step) put(leg, (mine + step) % ranks);
      memory_.fence();
      for (int step = 1; step < ranks; ++step) signal((mine + step) % ranks);
      for (int step = 1; step < ranks; ++step) await((mine + step) % ranks);
    }
  }

 private:
  std::size_t word(int rank) const { return static_cast<std::size_t>(rank) * sizeof(SignalWord); }
  std::size_t buffer(std::size_t leg, std::size_t index) const {
    return words_ + (2 * leg * ranks_ + index) * most_bytes_;
  }
  std::size_t source(std::size_t leg, std::size_t peer) const {
    return buffer(leg, ranks_ + (legs_[leg].same_for_all ? 0 : peer));
  }

  void put(std::size_t leg, int peer) {
    const auto index = static_cast<std::size_t>(peer);
    const std::size_t bytes = std::min(legs_[leg].bytes_to[index], most_bytes_);
    const std::size_t to = buffer(leg, static_cast<std::size_t>(memory_.rank()));
    const std::byte* from = memory_.local(source(leg, index));
    if (std::byte* direct = memory_.pointer(peer, to))
      cpu::copy_message({}, direct, from, bytes);
    else if (bytes != 0)
      memory_.put(peer, to, from, bytes);
  }
  void signal(int peer) {
    if (std::byte* direct = memory_.pointer(peer, word(memory_.rank()))) {
      cpu::finish_stores({});
      store_release(*reinterpret_cast<SignalWord*>(direct), turn_);
    } else {
      memory_.signal(peer, word(memory_.rank()), turn_);
    }
  }
  void await(int peer) const {
    auto pacer = memory_.make_pacer();
    const auto never = [] { return false; };
    const auto& here = *reinterpret_cast<const SignalWord*>(memory_.local(word(peer)));
    if (wait_at_least(here, turn_, never, pacer) != Waited::arrived)
      throw Error(ErrorKind::peer_missing, "rank " + std::to_string(peer) + " put nothing within the deadline");
  }

  std::size_t ranks_;
  std::vector<PutLeg> legs_;
  std::size_t most_bytes_;
  std::size_t words_;
  Memory memory_;
  Epoch turn_ = 0;
};

}  // namespace ferry::app
