// Bytes from rank to rank over a bootstrap's connections: send and receive.
#include <fmt/core.h>

#include <algorithm>

#include "base/deadline.h"
#include "net/bootstrap.h"
#include "net/socket/missing.h"

namespace ferry::net {
namespace {

constexpr std::size_t kPiece = std::size_t{1} << 20;  // each piece has the deadline for itself

}  // namespace

void Bootstrap::require_other_rank(const char* call, int other) const {
  if (other >= 0 && other < size() && other != rank_) return;
  throw Error(ErrorKind::invalid_argument,
              fmt::format("rank {}: {}: the other rank is {}; it must be 0 to {} and not this one", rank_, call, other,
                          size() - 1));
}

// Tells the other end, so that it does not wait for its own deadline.
void Bootstrap::give_up(int peer, std::chrono::milliseconds deadline) {
  if (!link(peer).gave_up) {
    link(peer).gave_up = true;
    queue(link(peer), Kind::gave_up, {});
    flush(link(peer));
  }
  throw_missing(rank_, peer, rank_, 0,
                fmt::format("rank {}: rank {} ended, or did not go on within {} ms, while bytes went between them",
                            rank_, peer, deadline.count()),
                link(peer).socket ? Absence::late : Absence::ended);
}

// Sends what is queued and reads what comes until the link is as wanted.
template <class IsDone>
void Bootstrap::wait_for(int peer, const IsDone& is_done, std::chrono::milliseconds deadline) {
  const Deadline until(std::min(deadline, kMaxDeadline));
  flush(link(peer));
  read(peer);
  while (!is_done(link(peer))) {
    throw_own_abort({});
    if (const AbortNotice* notice = find_abort(peer)) throw_aborted(rank_, *notice, {}, call_);
    if (link(peer).gave_up || !link(peer).socket || until.has_passed()) give_up(peer, deadline);
    wait({}, until);
  }
}

void Bootstrap::send(std::span<const std::byte> data, int to, std::chrono::milliseconds deadline) {
  require_other_rank("send", to);
  const Calling calling(*this);
  if (link(to).gave_up) give_up(to, deadline);
  for (std::size_t at = 0; at < data.size(); at += kPiece) {
    queue(link(to), Kind::bytes, data.subspan(at, std::min(kPiece, data.size() - at)));
    wait_for(
        to, [](const Link& link) { return link.out.empty(); }, deadline);
  }
  wait_for(
      to, [](const Link& link) { return link.taken > 0; }, deadline);
  --link(to).taken;
}

void Bootstrap::receive(std::span<std::byte> data, int from, std::chrono::milliseconds deadline) {
  require_other_rank("receive", from);
  const Calling calling(*this);
  if (link(from).gave_up) give_up(from, deadline);
  std::vector<std::byte>& bytes = link(from).bytes;
  while (!data.empty()) {
    wait_for(
        from, [](const Link& link) { return !link.bytes.empty(); }, deadline);
    const auto count = static_cast<std::ptrdiff_t>(std::min(bytes.size(), data.size()));
    std::copy_n(bytes.begin(), count, data.begin());
    bytes.erase(bytes.begin(), bytes.begin() + count);
    data = data.subspan(static_cast<std::size_t>(count));
  }
  queue(link(from), Kind::taken, {});
  wait_for(
      from, [](const Link& link) { return link.out.empty(); }, deadline);
}

}  // namespace ferry::net
