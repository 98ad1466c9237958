// Sockets with an owner and a deadline. No call blocks without a deadline, and none raises a signal.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

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

// The point in time at which a wait ends.
class Deadline {
 public:
  explicit Deadline(std::chrono::milliseconds from_now);
  bool has_passed() const { return Clock::now() >= end_; }
  // For poll(): 0 where it has passed, at most `most`.
  int milliseconds_left(int most = 1 << 30) const;
  std::chrono::milliseconds given() const { return given_; }

 private:
  using Clock = std::chrono::steady_clock;
  std::chrono::milliseconds given_;
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
