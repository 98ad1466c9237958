// HostFabric: ranks that share an address space. Every peer can be stored to, so a put is a copy and a signal is a
// release store.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <vector>

#include "cpu/fabric/cpu_fabric.h"
#include "cpu/fabric/host_group.h"
#include "cpu/fabric/host_waits.h"
#include "ferry/detail/protocol/contracts/fabric.h"

namespace ferry::cpu {

// A rank's symmetric memory, zeroed. It lives until the last rank that could write to it is gone (I16).
class Heap {
 public:
  explicit Heap(std::size_t bytes);
  // Mapped memory that processes share, which it unmaps.
  Heap(void* mapped, std::size_t bytes) : memory_(mapped), bytes_(bytes), is_shared_(true) {}
  ~Heap();
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(memory_); }
  std::size_t bytes() const { return bytes_; }

  // Gives the whole pages of a piece back to the system, also those of other processes' mappings. Who writes there next
  // finds fresh ones, which are zero. Returns their bytes. Throws Error(system).
  std::size_t give_back(std::size_t begin, std::size_t bytes);

 private:
  void* memory_;
  std::size_t bytes_;
  bool is_shared_ = false;
};

// All heaps of an exchange, in rank order; null for masked ranks.
using Heaps = std::vector<std::shared_ptr<Heap>>;

class HostCalls : public SerialFabricDefaults {
 public:
  static constexpr bool kGivesBack = true;
  HostCalls(int rank, Heaps heaps, std::size_t abort_words, const std::uint8_t* masked)
      : rank_(rank),
        heaps_(std::move(heaps)),
        mine_(heaps_[static_cast<std::size_t>(rank)]->data()),
        waits_(rank, size(), reinterpret_cast<const SignalWord*>(mine_ + abort_words), masked) {}

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(heaps_.size()); }
  std::byte* local(std::size_t offset) const { return mine_ + offset; }
  std::byte* peer_pointer(int peer, std::size_t offset) const {
    return heaps_[static_cast<std::size_t>(peer)]->data() + offset;
  }

  void put(const HostGroup& g, int peer, std::size_t offset, const void* source, std::size_t bytes) {
    std::byte* to = peer_pointer(peer, offset);
    if (bytes != 0 && to != source) copy_message(g, to, static_cast<const std::byte*>(source), bytes);
  }
  void put_then_signal(const HostGroup& g, int peer, const SignalledPut& p) {
    put(g, peer, p.offset, p.source, p.bytes);
    signal_after_puts(g, peer, p.word, p.value);
  }
  // I5, I7: the release orders every store of this thread before the word.
  void signal_after_puts(const HostGroup& g, int peer, std::size_t word, Epoch value) {
    finish_stores(g);
    store_release(*reinterpret_cast<SignalWord*>(peer_pointer(peer, word)), value);
  }
  void signal_without_order(const HostGroup& g, int peer, std::size_t word, Epoch value) {
    signal_after_puts(g, peer, word, value);
  }
  bool wait_at_least(const HostGroup&, std::size_t word, Epoch target, const WaitSite& site) {
    return waits_.wait(*reinterpret_cast<const SignalWord*>(local(word)), target, site);
  }

  // Of this rank's own memory, as Heap::give_back.
  std::size_t give_back(std::size_t begin, std::size_t bytes) {
    return heaps_[static_cast<std::size_t>(rank_)]->give_back(begin, bytes);
  }

  int find_culprit() const { return waits_.find_culprit(); }
  Absence absence_of(int missing) const { return waits_.absence_of(missing); }
  HostWaits& waits() { return waits_; }
  const HostWaits& waits() const { return waits_; }

 private:
  int rank_;
  Heaps heaps_;
  std::byte* mine_;
  HostWaits waits_;
};
using HostFabric = OneByOne<HostCalls>;
static_assert(CpuFabric<HostFabric>);

}  // namespace ferry::cpu
