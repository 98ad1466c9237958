// SymmetricMemory: one piece of symmetric memory on every rank of a world. All pieces have the same layout, and each
// lies at an offset of its own in its rank's heap. It knows these offsets and carries puts and signals.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "cpu/fabric/host_group.h"
#include "ferry/detail/base/order.h"
#include "ferry/detail/layout/node_map.h"
#include "shmem/process/shmem_process.h"

namespace ferry::cpu {

class SymmetricMemory {
 public:
  // Allocates this rank's piece and connects it to no rank. Only the words of its header are initialised.
  SymmetricMemory(std::shared_ptr<ShmemProcess> process, const NodeMap& nodes, std::size_t bytes,
                  std::chrono::milliseconds deadline);
  // I16: tells every connected rank that this rank no longer writes to that rank's piece. This rank's piece is free
  // again when all of them have said the same.
  ~SymmetricMemory();
  SymmetricMemory(const SymmetricMemory&) = delete;
  SymmetricMemory& operator=(const SymmetricMemory&) = delete;

  int rank() const { return rank_; }
  int ranks() const { return nodes_.ranks; }
  std::byte* local(std::size_t offset) const { return mine_ + offset; }
  std::size_t bytes() const { return bytes_; }
  ShmemProcess& process() const { return *process_; }

  // Where the piece lies in this rank's heap. The other ranks need it to connect.
  std::uint64_t offset() const;
  // `offsets` by rank; kNoOffset for ranks that take no part.
  void connect(const std::vector<std::uint64_t>& offsets);
  static constexpr std::uint64_t kNoOffset = ~std::uint64_t{0};

  // Null: the rank is reached by puts only.
  std::byte* pointer(int peer, std::size_t offset) const {
    std::byte* base = peers_[static_cast<std::size_t>(peer)].direct;
    return base == nullptr ? nullptr : base + offset;
  }
  bool is_direct(int peer) const { return peers_[static_cast<std::size_t>(peer)].direct != nullptr; }

  // For ranks without a pointer. The network reads the source late. Signals to one word keep their order (C7), and a
  // signal follows earlier puts to that rank if shmem::fence() stands between them.
  void put(int peer, std::size_t offset, const void* source, std::size_t bytes) const {
    shmem::put(peers_[static_cast<std::size_t>(peer)].remote + offset, source, bytes, peer);
  }
  void signal(int peer, std::size_t word, Epoch value) const {
    signal_from(peer, word, kept(1 + value % kValues, value));
  }
  // The caller owns the value: `source` must live, and must not change, until the signal has arrived.
  void signal_from(int peer, std::size_t word, const SignalWord& source) const {
    put(peer, word, &source, sizeof(SignalWord));
  }
  // The same value for `count` neighbouring words, at most kMostTogether. A put of several words tears none of them.
  void signal_together(int peer, std::size_t word, Epoch value, std::size_t count) const {
    SignalWord& first = together(value);
    if (load_relaxed(first) != value)
      for (std::size_t i = 0; i < kMostTogether; ++i) store_release((&first)[i], value);
    put(peer, word, &first, count * sizeof(SignalWord));
  }
  static constexpr std::size_t kMostTogether = 32;
  // For abort words, whose values may differ from a newer one by a multiple of kValues.
  void signal_rare(int peer, std::size_t word, Epoch value) const { signal_from(peer, word, kept(0, value)); }

 private:
  // The network reads a signal late, as any put. So its value lies in the piece and stays there until kValues newer
  // values have been sent. The protocol never has more than four epochs in flight (I1).
  static constexpr std::size_t kValues = 1023;
  SignalWord& kept(std::size_t index, Epoch value) const {
    SignalWord& word = header()[static_cast<std::size_t>(nodes_.ranks) + index];
    if (load_relaxed(word) != value) store_release(word, value);
    return word;
  }
  // The same for kMostTogether words. One thread at a time calls it, and values of at most kRounds rounds are in
  // flight.
  static constexpr std::size_t kRounds = 8;
  SignalWord& together(Epoch value) const {
    return header()[static_cast<std::size_t>(nodes_.ranks) + 1 + kValues + value % kRounds * kMostTogether];
  }
  // In front of the piece lie a word for each rank, which the rank sets when it lets go, and the values of signals.
  std::size_t header_bytes() const;
  SignalWord* header() const { return reinterpret_cast<SignalWord*>(mine_ - header_bytes()); }

  struct Peer {
    std::byte* direct = nullptr;
    std::byte* remote = nullptr;  // as an address of this process's heap; null: takes no part
  };

  std::shared_ptr<ShmemProcess> process_;
  NodeMap nodes_;
  int rank_;
  std::size_t bytes_;
  std::byte* mine_;
  bool connected_ = false;
  std::vector<Peer> peers_;
};

}  // namespace ferry::cpu
