#include "net/bootstrap.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/deadline.h"
#include "base/debug_log.h"
#include "net/socket/missing.h"

namespace ferry::net {
namespace {

constexpr std::uint32_t kFrameMagic = 0x46525259;
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 30;  // of a contribution
constexpr std::size_t kMostRead = std::size_t{4} << 20;       // at once: a sender may be faster than this rank

bool is_transient(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

}  // namespace

Bootstrap::Calling::Calling(Bootstrap& bootstrap) : bootstrap_(bootstrap) {
  std::unique_lock lock(bootstrap_.guard_);
  bootstrap_.changed_.wait(lock, [this] { return !bootstrap_.is_calling_; });
  bootstrap_.is_calling_ = true;
}
Bootstrap::Calling::Calling(Bootstrap& bootstrap, std::unique_lock<std::mutex>& lock) : bootstrap_(bootstrap) {
  bootstrap_.is_calling_ = true;
  lock.unlock();
}
Bootstrap::Calling::~Calling() {
  const std::lock_guard lock(bootstrap_.guard_);
  bootstrap_.is_calling_ = false;
  bootstrap_.send_own_abort();
  bootstrap_.send_missed();
  bootstrap_.changed_.notify_all();
}

Bootstrap::Bootstrap(const Job& job, std::chrono::milliseconds deadline)
    : rank_(job.rank), wakes_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (job.size < 1 || job.size > kMaxRanks || job.rank < 0 || job.rank >= job.size)
    throw Error(
        ErrorKind::invalid_argument,
        fmt::format("rank {} of {} ranks: there are 1 to {} ranks, numbered from 0", job.rank, job.size, kMaxRanks));
  const Deadline until(std::min(deadline, kMaxDeadline), job.stop);
  Mesh mesh = join(job, until);
  token_ = mesh.token;
  links_.resize(mesh.peers.size());
  for (std::size_t rank = 0; rank < links_.size(); ++rank) links_[rank].socket = std::move(mesh.peers[rank]);
  const std::chrono::milliseconds left(std::max(1, until.milliseconds_left()));
  if (mesh.missing >= 0) fail_joining(mesh.missing, mesh.error, left);
  aborts_on_stop_.emplace(job.stop, [this] {
    tell_aborted({rank_, rank_, "it was stopped while its world was made"});
  });
  const std::byte here{1};  // no rank leaves before all are connected to all
  std::vector<std::byte> all(links_.size());
  all_gather(std::span(&here, 1), all, {}, left);
  debug_log(DebugLevel::info, rank_, [&] { return fmt::format("{} processes met over TCP", job.size); });
}

void Bootstrap::set_up_is_done() {
  aborts_on_stop_.reset();
  throw_own_abort({});
}

void Bootstrap::queue(Link& link, Kind kind, std::span<const std::byte> bytes) {
  const Header header{kFrameMagic, kind, call_, bytes.size()};
  const auto head = std::as_bytes(std::span(&header, 1));
  link.out.insert(link.out.end(), head.begin(), head.end());
  link.out.insert(link.out.end(), bytes.begin(), bytes.end());
}

// Sends what the socket takes without waiting.
void Bootstrap::flush(Link& link) {
  std::size_t sent = 0;
  while (link.socket && sent < link.out.size()) {
    const ssize_t step = ::send(link.socket.get(), link.out.data() + sent, link.out.size() - sent, MSG_NOSIGNAL);
    if (step > 0)
      sent += static_cast<std::size_t>(step);
    else if (is_transient(errno))
      break;
    else
      sent = link.out.size();  // the other end is gone; what it had sent may still be read
  }
  link.out.erase(link.out.begin(), link.out.begin() + static_cast<std::ptrdiff_t>(sent));
}

// What has come, and at most kMostRead of it: the caller reads again.
void Bootstrap::read(int rank) {
  Link& from = link(rank);
  std::byte chunk[65536];
  for (std::size_t total = 0; from.socket && total < kMostRead;) {
    const ssize_t got = ::recv(from.socket.get(), chunk, sizeof chunk, 0);
    if (got > 0) {
      from.in.insert(from.in.end(), chunk, chunk + got);
      total += static_cast<std::size_t>(got);
      continue;
    }
    if (got < 0 && is_transient(errno)) break;
    from.socket.reset();  // its process ended, or left the world
  }
  take_frames(rank);
}

void Bootstrap::take_frames(int rank) {
  Link& from = link(rank);
  std::size_t at = 0;
  Header header{};
  while (from.in.size() - at >= sizeof header) {
    std::memcpy(&header, from.in.data() + at, sizeof header);
    if (header.magic != kFrameMagic || header.bytes > kMostBytes) {
      from.socket.reset();
      from.in.clear();
      return;
    }
    const auto bytes = static_cast<std::size_t>(header.bytes);
    if (from.in.size() - at - sizeof header < bytes) break;
    take_frame(rank, header, std::span(from.in).subspan(at + sizeof header, bytes));
    at += sizeof header + bytes;
  }
  from.in.erase(from.in.begin(), from.in.begin() + static_cast<std::ptrdiff_t>(at));
}

void Bootstrap::take_frame(int rank, const Header& header, std::span<const std::byte> body) {
  Link& from = link(rank);
  switch (header.kind) {
    case Kind::bytes:
      from.bytes.insert(from.bytes.end(), body.begin(), body.end());
      return;
    case Kind::taken:
      ++from.taken;
      return;
    case Kind::gave_up:
      from.gave_up = true;
      return;
    case Kind::aborted: {
      std::int32_t missing = rank;
      if (body.size() < sizeof missing || find_abort(rank) != nullptr) return;
      std::memcpy(&missing, body.data(), sizeof missing);
      const auto* text = reinterpret_cast<const char*>(body.data()) + sizeof missing;
      const std::lock_guard lock(guard_);
      aborts_.push_back({header.call, {rank, missing, std::string(text, body.size() - sizeof missing)}});
      changed_.notify_all();
      return;
    }
    case Kind::contribution:
      if (header.call >= call_)
        from.contributions[header.call].assign(body.begin(), body.end());  // else its call failed here
      return;
    case Kind::failed:
    case Kind::missed:
      return take_loss(rank, header, body);
  }
}

// The first rank whose contribution to this call is not there; with `only_ended`, the first whose contribution can
// never come. -1: none.
int Bootstrap::first_missing(const RankMask& mask, bool only_ended) const {
  for (int peer = 0; peer < size(); ++peer) {
    const Link& link = links_[static_cast<std::size_t>(peer)];
    if (peer == rank_ || is_masked(mask, peer) || link.contributions.contains(call_)) continue;
    if (!only_ended || !link.socket) return peer;
  }
  return -1;
}

bool Bootstrap::is_done(const RankMask& mask) const {
  if (first_missing(mask, false) >= 0) return false;
  for (int peer = 0; peer < size(); ++peer) {
    const Link& link = links_[static_cast<std::size_t>(peer)];
    if (!is_masked(mask, peer) && link.socket && !link.out.empty()) return false;  // who has left reads nothing
  }
  return true;
}

void Bootstrap::wait(const RankMask& mask, const Deadline& deadline) {
  std::vector<pollfd> watched;
  std::vector<int> ranks;
  for (int peer = 0; peer < size(); ++peer) {
    const Link& each = link(peer);
    if (!each.socket || is_masked(mask, peer)) continue;
    watched.push_back({each.socket.get(), static_cast<short>(POLLIN | (each.out.empty() ? 0 : POLLOUT)), 0});
    ranks.push_back(peer);
  }
  watched.push_back({wakes_.get(), POLLIN, 0});
  poll(watched.data(), watched.size(), deadline.milliseconds_left());
  if (eventfd_t wakes = 0; watched.back().revents != 0) eventfd_read(wakes_.get(), &wakes);
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if ((watched[i].revents & POLLOUT) != 0) flush(link(ranks[i]));
    if ((watched[i].revents & ~POLLOUT) != 0) read(ranks[i]);
  }
}

void Bootstrap::tell_failed(const RankMask& mask, const Failure& failure) {
  const std::int32_t missing = failure.missing;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank_ || is_masked(mask, peer)) continue;
    queue(link(peer), failure.is_relayed ? Kind::missed : Kind::failed, std::as_bytes(std::span(&missing, 1)));
    flush(link(peer));
  }
}

void Bootstrap::fail(const RankMask& mask, Failure failure, std::chrono::milliseconds deadline) {
  const std::int32_t missing = failure.missing;
  tell_failed(mask, failure);
  const bool ended = missing != rank_ && !links_[static_cast<std::size_t>(missing)].socket;
  const std::string advice = "Check that it is alive and makes the same calls, or give a mask that names it";
  std::string what;
  if (missing == rank_)
    what = fmt::format(
        "rank {}: rank {} gave up on this rank in set-up call {}, to which it came too late. Make the "
        "same calls on all ranks, or give a longer deadline",
        rank_, failure.reported_by, call_);
  else if (ended && failure.reported_by == rank_)
    what = fmt::format("rank {}: rank {} ended before set-up call {}. {}", rank_, missing, call_, advice);
  else if (failure.reported_by != rank_)
    what = fmt::format("rank {}: rank {} did not come to set-up call {}, as rank {} reports. {}", rank_, missing, call_,
                       failure.reported_by, advice);
  else
    what = fmt::format("rank {}: rank {} did not come to set-up call {} within {} ms. {}", rank_, missing, call_,
                       deadline.count(), advice);
  throw_missing(rank_, missing, failure.reported_by, call_, what, ended ? Absence::ended : Absence::late);
}

// In the first call, to which ranks come that all others have connected to. A rank that ended may have come to it, and
// may have said there whom it missed, as others may. What this rank found out itself may come of that: it is said to
// all where rank 0, to which all are connected, says nothing else in a moment.
void Bootstrap::fail_joining(int missing, const std::exception_ptr& error, std::chrono::milliseconds deadline) {
  const Calling calling(*this);
  ++call_;
  for (int peer = 0; peer < size(); ++peer)
    if (peer != rank_) read(peer);
  if (error == nullptr) fail({}, failure_of(missing, {}, deadline), deadline);
  const Deadline moment(moment_for_words(deadline));
  while (!failures_.contains(call_) && link(0).socket && !moment.has_passed()) wait({}, moment);
  if (failures_.contains(call_)) fail({}, failures_.at(call_), deadline);
  tell_failed({}, {missing, rank_, false});
  std::rethrow_exception(error);
}

void Bootstrap::begin_call(std::span<const std::byte> mine, const RankMask& mask) {
  ++call_;
  failures_.erase(failures_.begin(), failures_.lower_bound(call_));
  for (int peer = 0; peer < size(); ++peer) {
    Link& each = link(peer);
    each.contributions.erase(each.contributions.begin(), each.contributions.lower_bound(call_));
    if (peer == rank_ || is_masked(mask, peer)) continue;
    queue(each, Kind::contribution, mine);
    flush(each);
  }
}

void Bootstrap::all_gather(std::span<const std::byte> mine, std::span<std::byte> all, const RankMask& mask,
                           std::chrono::milliseconds deadline) {
  if (all.size() != mine.size() * links_.size())
    throw Error(ErrorKind::invalid_argument,
                fmt::format("rank {}: all_gather: `all` has {} bytes; it must have {} x {}", rank_, all.size(), size(),
                            mine.size()));
  if (mine.size() > kMostBytes)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("rank {}: all_gather: each rank gives {} bytes; the limit is {}. Gather them in parts",
                            rank_, mine.size(), kMostBytes));
  if (is_masked(mask, rank_))
    throw Error(ErrorKind::invalid_argument, fmt::format("rank {}: the mask takes out this rank itself", rank_));
  const Calling calling(*this);
  throw_own_abort(mask);  // not in the next call: the others wait for a rank that aborted in their own call
  const Deadline until(std::min(deadline, kMaxDeadline));
  begin_call(mine, mask);
  for (int peer = 0; peer < size(); ++peer)
    if (!is_masked(mask, peer)) read(peer);
  for (;;) {
    // Checked before the contributions: all those of a call may be there although other ranks gave it up.
    const auto reported = failures_.find(call_);
    if (reported != failures_.end() && !is_masked(mask, reported->second.reported_by)) {
      if (!is_masked(mask, reported->second.missing)) fail(mask, reported->second, deadline);
      begin_call(mine, mask);  // the others gave up a call of this number that this rank did not make
      continue;
    }
    if (is_done(mask)) break;
    throw_if_aborted(mask);
    const int ended = first_missing(mask, true);
    if (ended >= 0) fail(mask, failure_of(ended, mask, deadline), deadline);
    if (until.has_passed()) {
      const int missing = first_missing(mask, false);
      if (missing >= 0) fail(mask, failure_of(missing, mask, deadline), deadline);
      break;  // all contributions are here; another rank is slow to read, and the system goes on sending to it
    }
    wait(mask, until);
  }
  for (int peer = 0; peer < size(); ++peer) {
    std::byte* to = all.data() + static_cast<std::size_t>(peer) * mine.size();
    std::fill_n(to, mine.size(), std::byte{0});
    if (is_masked(mask, peer)) continue;
    const std::span<const std::byte> given =
        peer == rank_ ? mine : std::span<const std::byte>(link(peer).contributions[call_]);
    if (given.size() != mine.size())
      throw Error(
          ErrorKind::invalid_argument,
          fmt::format("rank {}: all_gather: rank {} gave {} bytes and this rank {}; all must give the same, and "
                      "make the same calls in the same order",
                      rank_, peer, given.size(), mine.size()));
    std::copy_n(given.begin(), given.size(), to);
  }
}

// Holds guard_. What the sockets do not take at once is sent in later calls.
void Bootstrap::send_own_abort() {
  if (!own_abort_ || has_told_) return;
  has_told_ = true;
  const std::string reason = own_abort_->reason.substr(0, kMostReason);
  const std::int32_t missing = own_abort_->missing;
  std::vector<std::byte> body(sizeof missing + reason.size());
  std::memcpy(body.data(), &missing, sizeof missing);
  std::memcpy(body.data() + sizeof missing, reason.data(), reason.size());
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank_ || !link(peer).socket) continue;
    queue(link(peer), Kind::aborted, body);
    flush(link(peer));
  }
}

void Bootstrap::tell_aborted(const AbortNotice& notice) {
  const std::lock_guard lock(guard_);
  own_abort_ = notice;
  eventfd_write(wakes_.get(), 1);
  if (!is_calling_) send_own_abort();
}

const AbortNotice* Bootstrap::find_abort(int rank) const {
  const auto found =
      std::find_if(aborts_.begin(), aborts_.end(), [rank](const Abort& each) { return each.notice.rank == rank; });
  return found == aborts_.end() ? nullptr : &found->notice;
}

void Bootstrap::throw_own_abort(const RankMask& mask) {
  const std::lock_guard lock(guard_);
  if (own_abort_) throw_aborted(rank_, *own_abort_, mask, call_);
}

// A rank that came to this call and aborted later ends no wait: the call may end as it should, so that all others make
// the same number of calls.
void Bootstrap::throw_if_aborted(const RankMask& mask) {
  throw_own_abort(mask);
  for (const Abort& each : aborts_)
    if (!is_masked(mask, each.notice.rank) && each.call < call_) throw_aborted(rank_, each.notice, mask, call_);
}

void Bootstrap::require_there(int rank) {
  const Calling calling(*this);
  read(rank);
  throw_own_abort({});
  if (const AbortNotice* notice = find_abort(rank)) throw_aborted(rank_, *notice, {}, call_);
  if (!link(rank).socket)
    throw_missing(rank_, rank, rank_, call_,
                  fmt::format("rank {}: rank {} ended in set-up call {}", rank_, rank, call_), Absence::ended);
}

bool Bootstrap::has_ended(int rank) {
  std::unique_lock lock(guard_);
  if (is_calling_) return false;
  const Calling calling(*this, lock);
  read(rank);
  return !link(rank).socket;
}

// Where a call is under way on another thread, that one reads what comes.
std::string Bootstrap::abort_reason(int rank) {
  if (rank < 0 || rank >= size() || rank == rank_) return {};
  const Deadline until(moment_for_words(std::chrono::milliseconds::max()));
  std::unique_lock lock(guard_);
  changed_.wait_for(lock, std::chrono::milliseconds(until.milliseconds_left()),
                    [&] { return !is_calling_ || find_abort(rank) != nullptr; });
  if (const AbortNotice* notice = find_abort(rank)) return notice->reason;
  if (is_calling_) return {};
  const Calling calling(*this, lock);
  for (read(rank); find_abort(rank) == nullptr && link(rank).socket && !until.has_passed();) wait({}, until);
  const AbortNotice* notice = find_abort(rank);
  return notice == nullptr ? std::string() : notice->reason;
}

}  // namespace ferry::net
