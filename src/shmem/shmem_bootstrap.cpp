#include "shmem/shmem_bootstrap.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "exchange/sizes/sizes.h"
#include "ferry/error.h"
#include "shmem/process/shmem_waits.h"

namespace ferry::cpu {
namespace {

constexpr std::size_t kMostChunkBytes = std::size_t{256} << 10;
// A rank may wait long here: for files that the first process reads, or for a world that it has no part in.
constexpr std::chrono::milliseconds kRestsAfter{1};
constexpr std::size_t kChunkMemory = std::size_t{16} << 20;  // for the chunks of all ranks together

std::size_t aligned(std::size_t bytes) {
  return (bytes + ShmemArena::kAlignment - 1) / ShmemArena::kAlignment * ShmemArena::kAlignment;
}

}  // namespace

ShmemBootstrap::Map::Map(int of)
    : ranks(static_cast<std::size_t>(of)),
      chunk_bytes(aligned(std::min(kMostChunkBytes, kChunkMemory / (2 * ranks)))) {}
std::size_t ShmemBootstrap::Map::piece(Epoch number, int source) const {
  return aligned(words_bytes()) + ((number & 1) * ranks + static_cast<std::size_t>(source)) * kPieceBytes;
}
std::size_t ShmemBootstrap::Map::chunk(Epoch number, int source) const {
  const std::size_t begin = aligned(words_bytes()) + 2 * ranks * kPieceBytes;
  return begin + ((number & 1) * ranks + static_cast<std::size_t>(source)) * chunk_bytes;
}

ShmemBootstrap::ShmemBootstrap(std::unique_ptr<SymmetricMemory> memory, std::shared_ptr<ShmemLosses> losses,
                               const Map& map)
    : memory_(std::move(memory)),
      losses_(std::move(losses)),
      map_(map),
      chunks_sent_(map.ranks),
      chunks_received_(map.ranks),
      given_up_for_(map.ranks, -1) {
  renew_sent();
}

void ShmemBootstrap::renew_sent() {
  sent_ = std::make_shared<Sent>(map_.ranks);
  memory_->process().keep(sent_);
}

void ShmemBootstrap::put(int peer, std::size_t offset, const std::byte* source, std::size_t bytes) const {
  if (bytes == 0) return;
  if (std::byte* to = memory_->pointer(peer, offset))
    std::memcpy(to, source, bytes);
  else
    memory_->put(peer, offset, source, bytes);
}

void ShmemBootstrap::signal_after_puts(int peer, std::size_t at, SignalWord& source, Epoch value) const {
  if (std::byte* to = memory_->pointer(peer, at)) return store_release(*reinterpret_cast<SignalWord*>(to), value);
  store_release(source, value);
  shmem::fence();
  memory_->signal_from(peer, at, source);
}

// Pieces are double-buffered by step. A rank sends step t + 2 only after it has step t + 1 of all ranks, and each rank
// sent step t + 1 after it had read all of step t.
void ShmemBootstrap::all_gather(std::span<const std::byte> mine, std::span<std::byte> all, const RankMask& mask,
                                std::chrono::milliseconds deadline) {
  const std::size_t pieces = std::max<std::size_t>(1, (mine.size() + kPieceBytes - 1) / kPieceBytes);
  const Epoch first = step_ + 1;
  step_ += pieces;
  last_mask_ = mask;
  if (has_aborted(rank())) throw_aborted_by(rank(), mask, first);
  std::fill(all.begin(), all.end(), std::byte{0});
  for (std::size_t index = 0; index < pieces; ++index) {
    const Step step{first + index, step_, mask, std::min(deadline, kMaxDeadline)};
    const std::size_t begin = index * kPieceBytes;
    const std::size_t bytes = std::min(kPieceBytes, mine.size() - begin);
    post_piece(step, mine.subspan(begin, bytes));
    await_pieces(step);
    for (int peer = 0; peer < ranks(); ++peer) {
      if (is_masked(mask, peer) || bytes == 0) continue;
      const std::byte* from = peer == rank() ? mine.data() + begin : memory_->local(map_.piece(step.number, peer));
      std::memcpy(all.data() + static_cast<std::size_t>(peer) * mine.size() + begin, from, bytes);
    }
    if (const int missing = find_given_up(step); missing >= 0) give_up(step, missing, true);
  }
  for (int peer = 0; peer < ranks(); ++peer)
    if (peer != rank() && !is_masked(mask, peer)) losses_->leave_behind(peer);
}

void ShmemBootstrap::post_piece(const Step& step, std::span<const std::byte> mine) {
  std::byte* sent = sent_->piece[step.number & 1];
  std::copy(mine.begin(), mine.end(), sent);
  for (int distance = 1; distance < ranks(); ++distance) {
    const int peer = (rank() + distance) % ranks();
    if (is_masked(step.mask, peer)) continue;
    put(peer, map_.piece(step.number, rank()), sent, mine.size());
    signal_after_puts(peer, map_.piece_here(rank()), sent_->piece_here[step.number & 1], step.number);
  }
}

void ShmemBootstrap::await_pieces(const Step& step) {
  ShmemPacer pacer(step.deadline, kRestsAfter);
  int missing = -1;
  bool reported = false;
  for (int peer = 0; peer < ranks() && missing < 0; ++peer) {
    if (peer == rank() || is_masked(step.mask, peer)) continue;
    const auto given_up = [&] { return find_given_up(step) >= 0 || find_aborted(step.mask, step.number) >= 0; };
    const Waited waited = wait_at_least(word(map_.piece_here(peer)), step.number, given_up, pacer);
    if (waited == Waited::arrived) continue;
    const int aborted = waited == Waited::aborted ? find_aborted(step.mask, step.number) : -1;
    if (aborted >= 0) throw_aborted_by(aborted, step.mask, step.number);
    reported = waited == Waited::aborted;
    if (!reported) tell(step.number, reported, peer, step.mask);
    missing = reported ? find_given_up(step) : find_culprit(step, peer);
  }
  if (missing >= 0) give_up(step, missing, reported);
}

// The text is there before the word. A word says whom its rank missed, itself included.
void ShmemBootstrap::tell_aborted(const AbortNotice& notice) const {
  std::byte* text = memory_->local(map_.abort_text(rank()));
  const std::size_t bytes = std::min(notice.reason.size(), kMostReason);
  std::memcpy(text, notice.reason.data(), bytes);
  text[bytes] = std::byte{0};
  auto& own = *reinterpret_cast<SignalWord*>(memory_->local(map_.aborted(rank())));
  const auto value = static_cast<Epoch>(notice.missing + 1);
  for (int peer = 0; peer < ranks(); ++peer) {
    if (peer == rank()) continue;
    put(peer, map_.abort_text(rank()), text, bytes + 1);
    signal_after_puts(peer, map_.aborted(rank()), own, value);
  }
  store_release(own, value);
}

std::string ShmemBootstrap::abort_reason(int rank) const {
  if (load_acquire(word(map_.aborted(rank))) == 0) return {};
  const auto* text = reinterpret_cast<const char*>(memory_->local(map_.abort_text(rank)));
  return {text, strnlen(text, Map::kTextBytes)};
}

// A rank that came and aborted later ends no wait: the call may end as it should, so that all others make the same
// number of calls.
int ShmemBootstrap::find_aborted(const RankMask& mask, Epoch number) const {
  for (int each = 0; each < ranks(); ++each)
    if (!is_masked(mask, each) && has_aborted(each) &&
        (each == rank() || load_acquire(word(map_.piece_here(each))) < number))
      return each;
  return -1;
}

void ShmemBootstrap::throw_aborted_by(int aborted, const RankMask& mask, Epoch number) const {
  const int missing = static_cast<int>(load_acquire(word(map_.aborted(aborted)))) - 1;
  throw_aborted(rank(), {aborted, missing, abort_reason(aborted)}, mask, number);
}

int ShmemBootstrap::find_given_up(const Step& step) const {
  for (int peer = 0; peer < ranks(); ++peer) {
    if (peer == rank() || is_masked(step.mask, peer)) continue;
    const Epoch value = load_acquire(word(map_.gave_up(peer)));
    if (value >> 16 >= step.number) return static_cast<int>(value & 0xffff) - 1;
  }
  return -1;
}

int ShmemBootstrap::find_culprit(const Step& step, int late) const {
  return losses_->find_culprit(late, step.deadline, [&](int each) {
    return each >= 0 && each < ranks() && each != rank() && !is_masked(step.mask, each) &&
           load_acquire(word(map_.piece_here(each))) < step.number;
  });
}

void ShmemBootstrap::tell(Epoch number, bool reported, int missing, const RankMask& mask) const {
  for (int peer = 0; peer < ranks(); ++peer)
    if (peer != rank() && !is_masked(mask, peer)) losses_->tell(peer, abort_word(number, reported, missing));
}

// I10
void ShmemBootstrap::give_up(const Step& step, int missing, bool reported) {
  const Epoch value = step.last << 16 | static_cast<Epoch>(missing + 1);
  for (int peer = 0; peer < ranks(); ++peer) {
    if (peer == rank() || is_masked(step.mask, peer)) continue;
    signal_after_puts(peer, map_.gave_up(rank()), sent_->gave_up, value);
  }
  renew_sent();
  tell(step.number, reported, missing, step.mask);
  WaitRecord record;
  record.operation = Operation::set_up;
  record.my_rank = record.reported_by = rank();
  record.missing_rank = missing;
  record.epoch_wanted = step.number;
  if (missing == rank())
    throw PeerMissing(record, fmt::format("rank {}: the others gave up on this rank in set-up call {}, where it came "
                                          "after their deadline",
                                          rank(), step.number));
  throw PeerMissing(record, fmt::format("rank {}: rank {} did not come to set-up call {} within the deadline {}. Check "
                                        "that it is alive and makes the same calls, or give a mask that names it",
                                        rank(), missing, step.number,
                                        reported ? "of another rank" : fmt::format("of {} ms", step.deadline.count())));
}

void ShmemBootstrap::await_step(std::size_t offset, Epoch number, int peer, const char* what,
                                std::chrono::milliseconds deadline) {
  ShmemPacer pacer(std::min(deadline, kMaxDeadline));
  const auto aborted = [&] { return has_aborted(peer) || has_aborted(rank()); };
  const Waited waited = wait_at_least(word(offset), number, aborted, pacer);
  if (waited == Waited::arrived) return;
  given_up_for_[static_cast<std::size_t>(peer)] = peer;
  if (waited == Waited::aborted) throw_aborted_by(has_aborted(rank()) ? rank() : peer, {}, number);
  tell(number, false, peer, last_mask_);
  const int missing = losses_->find_culprit(peer, deadline, [&](int each) {
    return each >= 0 && each < ranks() && each != rank() && !is_masked(last_mask_, each);
  });
  given_up_for_[static_cast<std::size_t>(peer)] = missing;
  WaitRecord record;
  record.operation = Operation::set_up;
  record.my_rank = record.reported_by = rank();
  record.missing_rank = missing;
  record.epoch_wanted = number;
  if (missing != peer)
    throw PeerMissing(record, fmt::format("rank {}: rank {} did not {}, since rank {} did not come to what it waited "
                                          "for. Check that rank {} is alive",
                                          rank(), peer, what, missing, missing));
  throw PeerMissing(record, fmt::format("rank {}: rank {} did not {} within the deadline of {} ms. Check that it is "
                                        "alive and makes the same calls",
                                        rank(), peer, what, deadline.count()));
}

void ShmemBootstrap::require_whole(int peer) const {
  const int missing = given_up_for_[static_cast<std::size_t>(peer)];
  if (missing < 0) return;
  if (has_aborted(rank()) || has_aborted(peer)) throw_aborted_by(has_aborted(rank()) ? rank() : peer, {}, step_);
  WaitRecord record;
  record.operation = Operation::set_up;
  record.my_rank = record.reported_by = rank();
  record.missing_rank = missing;
  throw PeerMissing(record,
                    fmt::format("rank {}: an earlier call gave up on rank {} while bytes went between this rank "
                                "and rank {}; no more can go. Make a new world",
                                rank(), missing, peer));
}

// Chunks are double-buffered: chunk c is sent when c - 2 was taken. All are taken at the end, so the next call may
// reuse both buffers.
void ShmemBootstrap::send(std::span<const std::byte> data, int to, std::chrono::milliseconds deadline) {
  require_whole(to);
  Epoch& number = chunks_sent_[static_cast<std::size_t>(to)];
  for (std::size_t begin = 0; begin < data.size(); begin += map_.chunk_bytes) {
    const std::span<const std::byte> chunk = data.subspan(begin, std::min(map_.chunk_bytes, data.size() - begin));
    if (++number > 2) await_step(map_.chunk_taken(to), number - 2, to, "take what was sent to it", deadline);
    const std::byte* from = chunk.data();
    if (!memory_->is_direct(to)) {
      std::byte* sent = memory_->local(map_.sent_chunk(number));
      std::memcpy(sent, chunk.data(), chunk.size());
      from = sent;
    }
    put(to, map_.chunk(number, rank()), from, chunk.size());
    signal_after_puts(to, map_.chunk_here(rank()), sent_->chunk_here[number & 1], number);
  }
  await_step(map_.chunk_taken(to), number, to, "take what was sent to it", deadline);
}

void ShmemBootstrap::receive(std::span<std::byte> data, int from, std::chrono::milliseconds deadline) {
  require_whole(from);
  Epoch& number = chunks_received_[static_cast<std::size_t>(from)];
  for (std::size_t begin = 0; begin < data.size(); begin += map_.chunk_bytes) {
    const std::size_t bytes = std::min(map_.chunk_bytes, data.size() - begin);
    await_step(map_.chunk_here(from), ++number, from, "send", deadline);
    std::memcpy(data.data() + begin, memory_->local(map_.chunk(number, from)), bytes);
    signal_after_puts(from, map_.chunk_taken(rank()), sent_->chunk_taken[static_cast<std::size_t>(from)], number);
  }
}

}  // namespace ferry::cpu
