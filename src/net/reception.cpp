#include "net/reception.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace ferry::net {
namespace {

constexpr std::size_t kMostStrangers = 64;  // connections without a Hello yet, beside one of each rank

}  // namespace

// Where too many wait, the oldest is closed. All are heard before, so that no rank is closed whose Hello is there.
bool Reception::run(const Receive& receive) {
  const std::size_t most = kMostStrangers + met_.size();
  for (;;) {
    wait();
    while (Descriptor socket = accept_waiting(listener_)) {
      if (waiting_.size() == most && hear_all(receive)) return true;
      if (waiting_.size() == most) waiting_.erase(waiting_.begin());
      waiting_.push_back({std::move(socket), {}, 0});
    }
    if (hear_all(receive)) return true;
    if (deadline_.has_passed() || ended_ >= 0) return false;
  }
}

void Reception::wait() {
  std::vector<pollfd> watched{{listener_.socket.get(), POLLIN, 0}};
  for (const Waiting& each : waiting_) watched.push_back({each.socket.get(), POLLIN, 0});
  const std::size_t first_met = watched.size();
  for (const Descriptor& each : met_) watched.push_back({each.get(), POLLRDHUP, 0});  // an empty one is passed over
  poll(watched.data(), watched.size(), deadline_.milliseconds_of_poll());
  for (std::size_t rank = 0; rank < met_.size(); ++rank)
    if ((watched[first_met + rank].revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0) ended_ = static_cast<int>(rank);
}

bool Reception::hear_all(const Receive& receive) {
  for (std::size_t i = 0; i < waiting_.size();) {
    const State state = hear(waiting_[i]);
    if (state == State::more) {
      ++i;
      continue;
    }
    Waiting heard = std::move(waiting_[i]);
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
    if (state == State::whole && receive(Caller{std::move(heard.socket), heard.hello})) return true;
  }
  return false;
}

Reception::State Reception::hear(Waiting& from) {
  auto* bytes = reinterpret_cast<std::byte*>(&from.hello);
  const ssize_t got = recv(from.socket.get(), bytes + from.got, sizeof(Hello) - from.got, 0);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return State::more;
  if (got <= 0) return State::stranger;
  const std::size_t checked = std::min(sizeof(kJoinMagic), from.got + static_cast<std::size_t>(got));
  from.got += static_cast<std::size_t>(got);
  if (std::memcmp(bytes, &kJoinMagic, checked) != 0) return State::stranger;
  return from.got == sizeof(Hello) ? State::whole : State::more;
}

}  // namespace ferry::net
