// ShmemFabric: ranks that are processes. Where a rank's memory is mapped here, a put is a copy and a signal a release
// store; all others are reached by OpenSHMEM's puts from symmetric memory.
#pragma once

#include <memory>
#include <utility>

#include "cpu/fabric/host_group.h"
#include "cpu/fabric/host_waits.h"
#include "ferry/detail/protocol/contracts/fabric.h"
#include "shmem/process/shmem_waits.h"
#include "shmem/shmem_losses.h"
#include "shmem/shmem_runs.h"
#include "shmem/symmetric_memory.h"

namespace ferry::cpu {

class ShmemFabric : public SerialFabricDefaults {
 public:
  ShmemFabric(std::shared_ptr<SymmetricMemory> memory, std::shared_ptr<ShmemLosses> losses, std::size_t abort_words,
              const std::uint8_t* masked)
      : memory_(std::move(memory)),
        losses_(std::move(losses)),
        masked_(masked),
        runs_(*memory_),
        waits_(memory_->rank(), memory_->ranks(), reinterpret_cast<const SignalWord*>(memory_->local(abort_words)),
               masked) {}

  int rank() const { return memory_->rank(); }
  int size() const { return memory_->ranks(); }
  std::byte* local(std::size_t offset) const { return memory_->local(offset); }
  std::byte* peer_pointer(int peer, std::size_t offset) const { return memory_->pointer(peer, offset); }

  // C1: to a rank without a pointer the source must be symmetric memory that stays as it is (I15).
  void put(const HostGroup& g, int peer, std::size_t offset, const void* source, std::size_t bytes) {
    if (std::byte* to = peer_pointer(peer, offset)) {
      if (bytes != 0 && to != source) copy_message(g, to, static_cast<const std::byte*>(source), bytes);
      return;
    }
    finish_stores(g);  // the network may read it from another core
    if (bytes != 0) memory_->put(peer, offset, source, bytes);
  }

  void put_then_signal(const HostGroup& g, int peer, const SignalledPut& p) {
    if (!memory_->is_direct(peer)) return keep_for_run(g, peer, p);
    put(g, peer, p.offset, p.source, p.bytes);
    signal(g, peer, p.word, p.value);
  }

  // I5, I7: stores are ordered by the release, puts by the fence.
  void signal_after_puts(const HostGroup& g, int peer, std::size_t word, Epoch value) {
    if (!memory_->is_direct(peer)) shmem::fence();
    signal(g, peer, word, value);
  }
  // C4. Only abort words come this way. This thread may signal the same word once more; the fence keeps the order (C7).
  void signal_without_order(const HostGroup& g, int peer, std::size_t word, Epoch value) {
    if ((value & kLeft) == 0) losses_->tell(peer, value);  // a rank that left an exchange is still there
    if (memory_->is_direct(peer)) return signal(g, peer, word, value);
    shmem::fence();
    memory_->signal_rare(peer, word, value);
  }

  // Ranks that share memory come last: theirs is the faster way.
  void put_then_signal_each(const HostGroup& g, const Destinations& to, const SignalledPut& p) {
    for (const bool direct : {false, true})
      for (int i = 0; i < to.count; ++i)
        if (memory_->is_direct(to.rank[i]) == direct) put_then_signal(g, to.rank[i], p);
  }

  void signal_each_after_puts(const HostGroup& g, int ranks, std::size_t word, Epoch value,
                              const std::uint8_t* skipped) {
    shmem::fence();
    for (int peer = 0; peer < ranks; ++peer)
      if (skipped == nullptr || skipped[peer] == 0) signal(g, peer, word, value);
  }

  bool wait_at_least(const HostGroup&, std::size_t word, Epoch target, const WaitSite& site) {
    ShmemPacer pacer(waits_.deadline());
    return waits_.wait(*reinterpret_cast<const SignalWord*>(local(word)), target, site, pacer);
  }

  template <class G, class WordOf, class SiteOf>
  bool wait_for_each(const G& g, int count, const WordOf& word, Epoch target, const SiteOf& site,
                     const std::uint8_t* skipped) {
    for (int i = 0; i < count; ++i)
      if ((skipped == nullptr || skipped[i] == 0) && !wait_at_least(g, word(i), target, site(i))) return false;
    return true;
  }

  void finish_puts(const HostGroup&) {
    runs_.flush();
    shmem::progress();
  }

  // I10: who said nothing here may have given up elsewhere, in set-up or on another exchange.
  int find_culprit() const {
    const auto may_be_missing = [this](int each) {
      return each >= 0 && each < size() && each != rank() && masked_[each] == 0;
    };
    return losses_->find_culprit(waits_.find_culprit(), std::chrono::milliseconds(0), may_be_missing);
  }

  Absence absence_of(int missing) const { return waits_.absence_of(missing); }
  HostWaits& waits() { return waits_; }
  const HostWaits& waits() const { return waits_; }

 private:
  // I5, I7: what goes by puts may wait for its neighbours until finish_puts.
  void keep_for_run(const HostGroup& g, int peer, const SignalledPut& p) {
    finish_stores(g);  // the network may read it from another core
    runs_.add(peer, p.offset, p.source, p.bytes, p.word, p.value);
  }

  void signal(const HostGroup& g, int peer, std::size_t word, Epoch value) {
    if (std::byte* to = peer_pointer(peer, word)) {
      finish_stores(g);
      store_release(*reinterpret_cast<SignalWord*>(to), value);
    } else {
      memory_->signal(peer, word, value);
    }
  }

  std::shared_ptr<SymmetricMemory> memory_;
  std::shared_ptr<ShmemLosses> losses_;
  const std::uint8_t* masked_;
  ShmemRuns runs_;
  HostWaits waits_;
};
static_assert(SerialFabric<ShmemFabric>);

}  // namespace ferry::cpu
