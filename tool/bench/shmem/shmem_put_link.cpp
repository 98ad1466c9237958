// Plain puts over OpenSHMEM: one to each rank, a fence, and a signal.
#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "cpu/host_group.h"
#include "ferry/error.h"
#include "shmem/shmem_memory.h"
#include "shmem/shmem_waits.h"
#include "tool/bench/shmem/shmem_put_link.h"

namespace ferry::app {
namespace {

class ShmemPutLink final : public PutLink {
 public:
  // Every rank's memory is the same: for each leg a buffer for what each rank puts here, then one to put from, or one
  // for each rank.
  ShmemPutLink(World& world, std::vector<PutLeg> legs, std::size_t most_bytes)
      : ranks_(static_cast<std::size_t>(world.size())),
        legs_(std::move(legs)),
        most_bytes_((most_bytes + 127) / 128 * 128),
        words_((ranks_ * sizeof(SignalWord) + 127) / 128 * 128),
        block_(cpu::share_memory(world, words_ + 2 * legs_.size() * ranks_ * most_bytes_, words_, kDefaultDeadline)) {
    for (std::size_t leg = 0; leg < legs_.size(); ++leg)
      std::memset(block_->local(source(leg, 0)), 1, (legs_[leg].same_for_all ? 1 : ranks_) * most_bytes_);
  }

  void exchange() override {
    const int mine = block_->rank();
    const int ranks = static_cast<int>(ranks_);
    for (std::size_t leg = 0; leg < legs_.size(); ++leg) {
      ++turn_;
      for (int step = 1; step < ranks; ++step) put(leg, (mine + step) % ranks);
      cpu::shmem::fence();
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
    const std::size_t to = buffer(leg, static_cast<std::size_t>(block_->rank()));
    const std::byte* from = block_->local(source(leg, index));
    if (std::byte* direct = block_->pointer(peer, to))
      cpu::copy_message({}, direct, from, bytes);
    else if (bytes != 0)
      block_->put(peer, to, from, bytes);
  }
  void signal(int peer) {
    if (std::byte* direct = block_->pointer(peer, word(block_->rank()))) {
      cpu::finish_stores({});
      store_release(*reinterpret_cast<SignalWord*>(direct), turn_);
    } else {
      block_->signal(peer, word(block_->rank()), turn_);
    }
  }
  void await(int peer) const {
    cpu::ShmemPacer pacer(kDefaultDeadline);
    const auto never = [] { return false; };
    const auto& here = *reinterpret_cast<const SignalWord*>(block_->local(word(peer)));
    if (wait_at_least(here, turn_, never, pacer) != Waited::arrived)
      throw Error(ErrorKind::peer_missing, "rank " + std::to_string(peer) + " put nothing within the deadline");
  }

  std::size_t ranks_;
  std::vector<PutLeg> legs_;
  std::size_t most_bytes_;
  std::size_t words_;
  std::unique_ptr<cpu::ShmemBlock> block_;
  Epoch turn_ = 0;
};

}  // namespace

std::unique_ptr<PutLink> make_shmem_put_link(World& world, std::vector<PutLeg> legs, std::size_t most_bytes) {
  return std::make_unique<ShmemPutLink>(world, std::move(legs), most_bytes);
}

}  // namespace ferry::app
