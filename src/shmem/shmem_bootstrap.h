// ShmemBootstrap: communication between the processes of a world before there is an exchange: all_gather of small
// pieces, and send and receive. It uses puts, signals and waits with deadlines, as an exchange does.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/abort_notice.h"
#include "ferry/world.h"
#include "shmem/shmem_losses.h"
#include "shmem/symmetric_memory.h"

namespace ferry::cpu {

class ShmemBootstrap {
 public:
  // Offsets in the bootstrap's memory, the same on all ranks.
  struct Map {
    explicit Map(int ranks);
    std::size_t piece(Epoch number, int source) const;
    std::size_t piece_here(int source) const { return word(0, source); }
    std::size_t gave_up(int source) const { return word(1, source); }
    std::size_t chunk(Epoch number, int source) const;
    std::size_t chunk_here(int source) const { return word(2, source); }
    std::size_t chunk_taken(int by) const { return word(3, by); }
    std::size_t sent_chunk(Epoch number) const { return chunk(0, 0) + (2 * ranks + (number & 1)) * chunk_bytes; }
    std::size_t aborted(int source) const { return word(4, source); }
    std::size_t words_bytes() const { return word(5, 0); }
    std::size_t abort_text(int source) const {
      return sent_chunk(1) + chunk_bytes + static_cast<std::size_t>(source) * kTextBytes;
    }
    std::size_t total() const { return abort_text(0) + ranks * kTextBytes; }

    std::size_t ranks;
    std::size_t chunk_bytes;

    static constexpr std::size_t kTextBytes = 256;
    static_assert(kMostReason < kTextBytes);  // a zero ends the text

   private:
    std::size_t word(std::size_t kind, int rank) const {
      return (kind * ranks + static_cast<std::size_t>(rank)) * sizeof(SignalWord);
    }
  };

  // `memory` is connected, and its words are zero.
  ShmemBootstrap(std::unique_ptr<SymmetricMemory> memory, std::shared_ptr<ShmemLosses> losses, const Map& map);

  const std::shared_ptr<ShmemLosses>& losses() const { return losses_; }

  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all, const RankMask& mask,
                  std::chrono::milliseconds deadline);
  void send(std::span<const std::byte> data, int to, std::chrono::milliseconds deadline);
  void receive(std::span<std::byte> data, int from, std::chrono::milliseconds deadline);

  // World::tell_aborted and abort_reason. From any thread.
  void tell_aborted(const AbortNotice& notice) const;
  std::string abort_reason(int rank) const;

 private:
  struct Step {
    Epoch number;
    Epoch last;  // the last step of this call; a rank that gives up skips to it
    const RankMask& mask;
    std::chrono::milliseconds deadline;
  };
  static constexpr std::size_t kPieceBytes = 512;
  // Sources of puts, which the network reads late. A put to a rank that was given up may read them at any time. So
  // after a failure they never change again, and new ones are used.
  struct Sent {
    explicit Sent(std::size_t ranks) : chunk_taken(ranks) {}
    std::byte piece[2][kPieceBytes] = {};
    SignalWord piece_here[2];
    SignalWord gave_up;
    SignalWord chunk_here[2];
    std::vector<SignalWord> chunk_taken;  // [ranks]: values only grow, so a newer one does no harm
  };

  int rank() const { return memory_->rank(); }
  int ranks() const { return memory_->ranks(); }
  const SignalWord& word(std::size_t offset) const {
    return *reinterpret_cast<const SignalWord*>(memory_->local(offset));
  }
  void put(int peer, std::size_t offset, const std::byte* source, std::size_t bytes) const;
  void signal_after_puts(int peer, std::size_t at, SignalWord& source, Epoch value) const;
  void renew_sent();
  void post_piece(const Step& step, std::span<const std::byte> mine);
  void await_pieces(const Step& step);
  bool has_aborted(int rank) const { return load_acquire(word(map_.aborted(rank))) != 0; }
  // The first rank that the mask leaves in and that aborted before it came to this step, or this rank itself; -1: none.
  int find_aborted(const RankMask& mask, Epoch number) const;
  [[noreturn]] void throw_aborted_by(int aborted, const RankMask& mask, Epoch number) const;
  // The rank that another rank gave up on in this step; -1: none.
  int find_given_up(const Step& step) const;
  [[noreturn]] void give_up(const Step& step, int missing, bool reported);
  // The rank that is missing. `late` did not come, but may itself have waited for another rank.
  int find_culprit(const Step& step, int late) const;
  void tell(Epoch number, bool reported, int missing, const RankMask& mask) const;
  void await_step(std::size_t offset, Epoch number, int peer, const char* what, std::chrono::milliseconds deadline);
  void require_whole(int peer) const;

  std::unique_ptr<SymmetricMemory> memory_;
  std::shared_ptr<ShmemLosses> losses_;
  Map map_;
  RankMask last_mask_;
  Epoch step_ = 0;
  std::shared_ptr<Sent> sent_;
  std::vector<Epoch> chunks_sent_;      // [ranks]
  std::vector<Epoch> chunks_received_;  // [ranks]
  // [ranks]: whom this rank gave up on in a send or receive with that rank; -1: no one. The two may count chunks apart
  // since then, so none goes between them any more.
  std::vector<int> given_up_for_;
};

}  // namespace ferry::cpu
