// ShmemBlock: one piece of symmetric memory on every rank of a world, of the same layout: where it lies at each rank
// and how its bytes get there. Each rank's lies at an offset of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "cpu/host_group.h"
#include "ferry/detail/base/order.h"
#include "ferry/detail/layout/node_map.h"
#include "shmem/shmem_process.h"

namespace ferry::cpu {

class ShmemBlock {
 public:
  // Allocates this rank's piece, of any content but for its own words, and connects it to nobody.
  ShmemBlock(std::shared_ptr<ShmemProcess> process, const NodeMap& nodes, std::size_t bytes,
             std::chrono::milliseconds deadline);
  // I16: tells every rank it was connected to that this one writes to its piece no more. The own piece is free again
  // when all of them have said so.
  ~ShmemBlock();
  ShmemBlock(const ShmemBlock&) = delete;
  ShmemBlock& operator=(const ShmemBlock&) = delete;

  int rank() const { return rank_; }
  int ranks() const { return nodes_.ranks; }
  std::byte* local(std::size_t offset) const { return mine_ + offset; }
  std::size_t bytes() const { return bytes_; }
  ShmemProcess& process() const { return *process_; }

  // Where the piece lies in this rank's heap: what the others need to know.
  std::uint64_t offset() const;
  // `offsets` of all ranks; those of ranks that take no part are kNoOffset.
  void connect(const std::vector<std::uint64_t>& offsets);
  static constexpr std::uint64_t kNoOffset = ~std::uint64_t{0};

  // Null: by puts only.
  std::byte* pointer(int peer, std::size_t offset) const {
    std::byte* base = peers_[static_cast<std::size_t>(peer)].direct;
    return base == nullptr ? nullptr : base + offset;
  }
  bool is_direct(int peer) const { return peers_[static_cast<std::size_t>(peer)].direct != nullptr; }

  // To a rank without a pointer. The source is read late. Signals to one word keep their order (C7), and follow earlier
  // puts to that rank where shmem::fence() comes between.
  void put(int peer, std::size_t offset, const void* source, std::size_t bytes) const {
    shmem::put(peers_[static_cast<std::size_t>(peer)].remote + offset, source, bytes, peer);
  }
  void signal(int peer, std::size_t word, Epoch value) const {
    signal_from(peer, word, kept(1 + value % kValues, value));
  }
  // Where the caller keeps the value: `source` lasts, and holds nothing else until the signal is there.
  void signal_from(int peer, std::size_t word, const SignalWord& source) const {
    put(peer, word, &source, sizeof(SignalWord));
  }
  // The same value to `count` words that lie together, at most kMostTogether. A word is whole in any put of several.
  void signal_together(int peer, std::size_t word, Epoch value, std::size_t count) const {
    SignalWord& first = together(value);
    if (load_relaxed(first) != value)
      for (std::size_t i = 0; i < kMostTogether; ++i) store_release((&first)[i], value);
    put(peer, word, &first, count * sizeof(SignalWord));
  }
  static constexpr std::size_t kMostTogether = 32;
  // For a value that may differ from a newer one by a multiple of kValues: an abort word.
  void signal_rare(int peer, std::size_t word, Epoch value) const { signal_from(peer, word, kept(0, value)); }

 private:
  // A signal is read late like any put, so its value lies where it stays: in the piece, for as long as fewer than
  // kValues newer ones are sent. The protocol never has more than four epochs on their way (I1).
  static constexpr std::size_t kValues = 1023;
  SignalWord& kept(std::size_t index, Epoch value) const {
    SignalWord& word = header()[static_cast<std::size_t>(nodes_.ranks) + index];
    if (load_relaxed(word) != value) store_release(word, value);
    return word;
  }
  // As kept(), kMostTogether times: one thread at a time, and values of kRounds rounds at most on their way.
  static constexpr std::size_t kRounds = 8;
  SignalWord& together(Epoch value) const {
    return header()[static_cast<std::size_t>(nodes_.ranks) + 1 + kValues + value % kRounds * kMostTogether];
  }
  // Before the piece: a word for each rank, which says that it has let go; then the values of signals.
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
