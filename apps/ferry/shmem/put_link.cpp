// Plain puts over OpenSHMEM: one to each rank, a fence, and a signal.
#include <algorithm>
#include <cstring>
#include <string>

#include "cpu/host_group.h"
#include "cpu/shmem_memory.h"
#include "cpu/shmem_waits.h"
#include "ferry/error.h"
#include "ferry/shmem.h"

namespace ferry::app {
namespace {

class ShmemPutLink final : public PutLink {
 public:
  ShmemPutLink(World& world, std::size_t most_bytes)
      : ranks_(static_cast<std::size_t>(world.size())),
        most_bytes_((most_bytes + 127) / 128 * 128),
        words_(ranks_ * 2 * sizeof(SignalWord)),
        block_(cpu::share_memory(world, 2 * words_ + (ranks_ + 1) * most_bytes_, words_, kDefaultDeadline)) {
    std::memset(block_->local(buffer(ranks_)), 1, most_bytes_);
  }

  void exchange(std::span<const std::size_t> bytes_to) override {
    ++turn_;
    const int mine = block_->rank();
    const int ranks = static_cast<int>(ranks_);
    for (int step = 1; step < ranks; ++step) put((mine + step) % ranks, bytes_to);
    cpu::shmem::fence();
    for (int step = 1; step < ranks; ++step) signal((mine + step) % ranks);
    for (int step = 1; step < ranks; ++step) await((mine + step) % ranks);
  }

 private:
  std::size_t word(int rank) const { return static_cast<std::size_t>(rank) * sizeof(SignalWord); }
  std::size_t buffer(std::size_t index) const { return 2 * words_ + index * most_bytes_; }

  void put(int peer, std::span<const std::size_t> bytes_to) {
    const std::size_t bytes = std::min(bytes_to[static_cast<std::size_t>(peer)], most_bytes_);
    const std::size_t to = buffer(static_cast<std::size_t>(block_->rank()));
    const std::byte* from = block_->local(buffer(ranks_));
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
  std::size_t most_bytes_;
  std::size_t words_;
  std::unique_ptr<cpu::ShmemBlock> block_;
  Epoch turn_ = 0;
};

}  // namespace

std::unique_ptr<PutLink> make_shmem_put_link(World& world, std::size_t most_bytes) {
  return std::make_unique<ShmemPutLink>(world, most_bytes);
}

}  // namespace ferry::app
