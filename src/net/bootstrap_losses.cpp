// Whom the ranks of a job gave up on, as they tell each other: in set-up, and in exchanges (I10).
#include <cstring>

#include "ferry/detail/layout/abort_word.h"
#include "net/bootstrap.h"

namespace ferry::net {

void Bootstrap::tell_missed(int peer, int missing) {
  const std::lock_guard lock(guard_);
  untold_.push_back({peer, missing});
  if (!is_calling_) send_missed();
}

// Holds guard_.
void Bootstrap::send_missed() {
  for (const auto& [peer, missing] : untold_) {
    if (peer == rank_ || !link(peer).socket) continue;
    const std::int32_t named = missing;
    queue(link(peer), Kind::missed, std::as_bytes(std::span(&named, 1)));
    flush(link(peer));
  }
  untold_.clear();
}

void Bootstrap::take_loss(int rank, const Header& header, std::span<const std::byte> body) {
  std::int32_t missing = -1;
  if (body.size() != sizeof missing) return;
  std::memcpy(&missing, body.data(), sizeof missing);
  link(rank).loss = {header.call, missing};
  if (header.kind == Kind::failed && header.call >= call_) failures_.emplace(header.call, Failure{missing, rank, true});
}

// What a rank said before call `since` is about a failure that the job has left behind.
int Bootstrap::follow_losses(int missing, std::uint64_t since, const RankMask& mask, const Deadline& moment) {
  const auto loss_of = [&](int rank) {
    const Loss& loss = link(rank).loss;
    const bool counts = loss.call >= since && loss.missing >= 0 && loss.missing < size();
    return counts && !is_masked(mask, loss.missing) ? abort_word(0, false, loss.missing) : Epoch{0};
  };
  return follow_abort_words(missing, rank_, missing, size(), [&](int suspect) {
    while (loss_of(suspect) == 0 && link(suspect).socket && !moment.has_passed()) wait(mask, moment);
    return loss_of(suspect);
  });
}

int Bootstrap::find_culprit(int missing, const RankMask& mask) {
  std::unique_lock lock(guard_);
  if (is_calling_ || missing < 0 || missing >= size() || missing == rank_) return missing;
  const Calling calling(*this, lock);
  read(missing);
  return follow_losses(missing, call_, mask, Deadline(moment_for_words({})));
}

// The rank for which `missing` did not come, where it says so in a moment.
Bootstrap::Failure Bootstrap::failure_of(int missing, const RankMask& mask, std::chrono::milliseconds deadline) {
  const int culprit = follow_losses(missing, call_ - 1, mask, Deadline(moment_for_words(deadline)));
  const auto reported = failures_.find(call_);
  if (reported != failures_.end() && !is_masked(mask, reported->second.reported_by) &&
      !is_masked(mask, reported->second.missing))
    return reported->second;
  return {culprit, culprit == missing ? rank_ : missing, false};
}

}  // namespace ferry::net
