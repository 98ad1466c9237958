// Sockets with an owner and a deadline. No call blocks without a deadline, and none raises a signal.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stop_token>
#include <string>
#include <utility>

namespace ferry::net {

// A file descriptor with its owner.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() { reset(); }
  Descriptor(Descriptor&& other) noexcept : fd_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    reset(other.release());
    return *this;
  }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release() {
    const int fd = fd_;
    fd_ = -1;
    return fd;
  }
  void reset(int fd = -1);

 private:
  int fd_ = -1;
};

// The point in time at which a wait ends. A request to `stop` ends it at once.
class Deadline {
 public:
  explicit Deadline(std::chrono::milliseconds from_now, std::stop_token stop = {});
  // At another time, and by the same request.
  Deadline in(std::chrono::milliseconds from_now) const { return Deadline(from_now, stop_); }
  bool is_stopped() const { return stop_.stop_requested(); }
  bool has_passed() const { return is_stopped() || Clock::now() >= end_; }
  // Until its time, whether it is stopped or not: 0 where that has passed, at most `most`.
  int milliseconds_left(int most = 1 << 30) const;
  // For poll(), which no request wakes: where one may come, the caller looks every so often whether it has passed.
  int milliseconds_of_poll() const {
    if (is_stopped()) return 0;
    return milliseconds_left(stop_.stop_possible() ? kLookEvery : 1 << 30);
  }
  std::chrono::milliseconds given() const { return given_; }

 private:
  static constexpr int kLookEvery = 50;  // milliseconds
  using Clock = std::chrono::steady_clock;
  std::chrono::milliseconds given_;
  std::stop_token stop_;
  Clock::time_point end_;
};

// "host:port" or "[v6 address]:port", in its parts. Throws Error(invalid_argument).
struct HostPort {
  std::string host;
  std::uint16_t port = 0;
};
HostPort parse_address(const std::string& address);
std::string to_string(const HostPort& address);
// localhost, 127.x.y.z or ::1, as text.
bool is_loopback(const std::string& host);

struct Listener {
  Descriptor socket;
  std::uint16_t port = 0;
};
// Listens on all interfaces, or on the loopback one where `host` is one of its names. Port 0: any. Throws
// Error(system).
Listener listen_on(const HostPort& address);

// One attempt to connect, within the deadline; an empty descriptor and `why` if it failed. The system resolves the
// name, which may take longer than the deadline.
Descriptor connect_once(const HostPort& address, const Deadline& deadline, std::string& why);
// The next connection that waits, or an empty descriptor. Throws Error(system) where this process can open no more.
Descriptor accept_waiting(const Listener& listener);
// The address of the other end, as text.
std::string peer_host(const Descriptor& socket);

// Sends and receives exactly `bytes`; false where the other end is gone or the deadline passed.
bool send_all(const Descriptor& socket, std::span<const std::byte> bytes, const Deadline& deadline);
bool receive_all(const Descriptor& socket, std::span<std::byte> bytes, const Deadline& deadline);

// Lets time pass.
void pause(std::chrono::milliseconds time);

std::uint64_t random_number();

}  // namespace ferry::net
