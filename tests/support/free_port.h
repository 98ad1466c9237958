// A port of this host for a test to meet at.
#pragma once

#include <cstdint>

#include "ferry/error.h"
#include "net/socket/socket.h"

namespace ferry::test {

// Nothing listens there, and no connection gets it by itself before the test does: it lies below the ports that
// Linux gives to connections, of which a world's set-up makes many.
inline std::uint16_t free_port() {
  constexpr std::uint64_t kFirst = 12'000;
  constexpr std::uint64_t kCount = 20'000;
  for (int tries_left = 99;; --tries_left) {
    const auto port = static_cast<std::uint16_t>(kFirst + net::random_number() % kCount);
    try {
      return net::listen_on({"127.0.0.1", port}).port;
    } catch (const Error&) {
      if (tries_left == 0) throw;  // else it is taken
    }
  }
}

}  // namespace ferry::test
