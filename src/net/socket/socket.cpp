#include "net/socket/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <random>
#include <utility>

#include "ferry/error.h"

namespace ferry::net {
namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Addresses resolve(const HostPort& address, int flags, std::string& why) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  const char* host = address.host.empty() ? nullptr : address.host.c_str();
  const int status = getaddrinfo(host, std::to_string(address.port).c_str(), &hints, &found);
  if (status != 0) why = fmt::format("{}: {}", address.host, gai_strerror(status));
  return {status == 0 ? found : nullptr, &freeaddrinfo};
}

Descriptor open_socket(const addrinfo& address) {
  return Descriptor(socket(address.ai_family, address.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, address.ai_protocol));
}

void set_option(const Descriptor& socket, int level, int option, int value) {
  setsockopt(socket.get(), level, option, &value, sizeof value);
}

bool wait_for(const Descriptor& socket, short events, const Deadline& deadline) {
  pollfd watched{socket.get(), events, 0};
  int ready = 0;
  do {
    ready = poll(&watched, 1, deadline.milliseconds_of_poll());
  } while ((ready < 0 && errno == EINTR) || (ready == 0 && !deadline.has_passed()));
  return ready > 0;
}

bool is_transient(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

std::uint16_t port_of(const Descriptor& socket) {
  sockaddr_storage name{};
  socklen_t length = sizeof name;
  if (getsockname(socket.get(), reinterpret_cast<sockaddr*>(&name), &length) != 0) return 0;
  if (name.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6&>(name).sin6_port);
  return ntohs(reinterpret_cast<const sockaddr_in&>(name).sin_port);
}

// The system may give the port that is connected to, if nobody listens on it yet, to the connecting socket itself.
bool is_own_end(const Descriptor& socket) {
  sockaddr_storage mine{};
  sockaddr_storage other{};
  socklen_t length = sizeof mine;
  socklen_t other_length = sizeof other;
  const bool known = getsockname(socket.get(), reinterpret_cast<sockaddr*>(&mine), &length) == 0 &&
                     getpeername(socket.get(), reinterpret_cast<sockaddr*>(&other), &other_length) == 0;
  return known && length == other_length && std::memcmp(&mine, &other, length) == 0;
}

}  // namespace

void Descriptor::reset(int fd) {
  if (fd_ >= 0) close(fd_);
  fd_ = fd;
}

Deadline::Deadline(std::chrono::milliseconds from_now, std::stop_token stop)
    : given_(from_now), stop_(std::move(stop)), end_(Clock::now() + from_now) {}

int Deadline::milliseconds_left(int most) const {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(end_ - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, most));
}

HostPort parse_address(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  HostPort parsed;
  unsigned port = 0;
  bool good = colon != std::string::npos && colon > 0;
  if (good) {
    const char* end = address.data() + address.size();
    const auto result = std::from_chars(address.data() + colon + 1, end, port);
    good = result.ec == std::errc() && result.ptr == end && port > 0 && port <= 0xFFFF;
    parsed.host = address.substr(0, colon);
    if (parsed.host.size() > 2 && parsed.host.front() == '[' && parsed.host.back() == ']')
      parsed.host = parsed.host.substr(1, parsed.host.size() - 2);
    else
      good = good && parsed.host.find(':') == std::string::npos;
  }
  if (!good)
    throw Error(
        ErrorKind::invalid_argument,
        fmt::format("the address \"{}\" is not host:port with a port from 1 to 65535 (an IPv6 address stands in "
                    "brackets)",
                    address));
  parsed.port = static_cast<std::uint16_t>(port);
  return parsed;
}

std::string to_string(const HostPort& address) {
  if (address.host.find(':') != std::string::npos) return fmt::format("[{}]:{}", address.host, address.port);
  return fmt::format("{}:{}", address.host, address.port);
}

bool is_loopback(const std::string& host) { return host == "localhost" || host == "::1" || host.starts_with("127."); }

Listener listen_on(const HostPort& address) {
  std::string why;
  const HostPort at{is_loopback(address.host) ? address.host : "", address.port};
  const Addresses addresses = resolve(at, AI_PASSIVE | AI_NUMERICSERV, why);
  // All interfaces: an IPv6 socket takes IPv4 connections as well. Where there is none, the IPv4 one.
  for (const int family : {AF_INET6, AF_INET}) {
    for (const addrinfo* each = addresses.get(); each != nullptr; each = each->ai_next) {
      if (each->ai_family != family) continue;
      Listener listener{open_socket(*each), 0};
      if (listener.socket) {
        set_option(listener.socket, SOL_SOCKET, SO_REUSEADDR, 1);
        if (family == AF_INET6) set_option(listener.socket, IPPROTO_IPV6, IPV6_V6ONLY, 0);
        if (bind(listener.socket.get(), each->ai_addr, each->ai_addrlen) == 0 &&
            listen(listener.socket.get(), SOMAXCONN) == 0) {
          listener.port = port_of(listener.socket);
          return listener;
        }
      }
      why = std::strerror(errno);
    }
  }
  throw Error(ErrorKind::system, fmt::format("cannot listen at {}: {}. Give another port", to_string(address), why));
}

Descriptor connect_once(const HostPort& address, const Deadline& deadline, std::string& why) {
  const Addresses addresses = resolve(address, AI_NUMERICSERV, why);
  for (const addrinfo* each = addresses.get(); each != nullptr; each = each->ai_next) {
    Descriptor socket = open_socket(*each);
    if (!socket) {
      why = std::strerror(errno);
      continue;
    }
    int error = connect(socket.get(), each->ai_addr, each->ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
      socklen_t length = sizeof error;
      if (!wait_for(socket, POLLOUT, deadline))
        error = ETIMEDOUT;
      else if (getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length) != 0)
        error = errno;
    }
    if (error == 0 && is_own_end(socket)) error = ECONNREFUSED;
    if (error == 0) {
      set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
      return socket;
    }
    why = std::strerror(error);
  }
  return {};
}

// Linux reports errors of a connection that came here, too: that connection is gone. Others, such as too many open
// files, leave the connection waiting, so whoever waits for the next one would spin.
Descriptor accept_waiting(const Listener& listener) {
  Descriptor socket(accept4(listener.socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  const int error = errno;
  if (socket)
    set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  else if (error == EMFILE || error == ENFILE)
    throw Error(ErrorKind::system,
                fmt::format("cannot take a connection at port {}: {}. Raise the limit of open files (ulimit -n)",
                            listener.port, std::strerror(error)));
  else if (error == ENOMEM || error == ENOBUFS)
    throw Error(ErrorKind::system, fmt::format("cannot take a connection at port {}: {}. Free memory on this host",
                                               listener.port, std::strerror(error)));
  return socket;
}

std::string peer_host(const Descriptor& socket) {
  sockaddr_storage name{};
  socklen_t length = sizeof name;
  char host[NI_MAXHOST] = "";
  if (getpeername(socket.get(), reinterpret_cast<sockaddr*>(&name), &length) != 0 ||
      getnameinfo(reinterpret_cast<sockaddr*>(&name), length, host, sizeof host, nullptr, 0, NI_NUMERICHOST) != 0)
    return "";
  const std::string text = host;
  return text.starts_with("::ffff:") ? text.substr(7) : text;
}

bool send_all(const Descriptor& socket, std::span<const std::byte> bytes, const Deadline& deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent > 0)
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
    else if (!is_transient(errno) || !wait_for(socket, POLLOUT, deadline))
      return false;
  }
  return true;
}

bool receive_all(const Descriptor& socket, std::span<std::byte> bytes, const Deadline& deadline) {
  while (!bytes.empty()) {
    const ssize_t got = recv(socket.get(), bytes.data(), bytes.size(), 0);
    if (got > 0)
      bytes = bytes.subspan(static_cast<std::size_t>(got));
    else if (got == 0 || !is_transient(errno) || !wait_for(socket, POLLIN, deadline))
      return false;
  }
  return true;
}

void pause(std::chrono::milliseconds time) { poll(nullptr, 0, static_cast<int>(time.count())); }

std::uint64_t random_number() {
  std::random_device source;
  return std::uint64_t{source()} << 32 | source();
}

}  // namespace ferry::net
