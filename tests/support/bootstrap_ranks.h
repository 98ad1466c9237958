// What tests of processes that meet by TCP share. Their ranks are threads here.
#pragma once

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "net/bootstrap.h"
#include "support/free_port.h"

namespace ferry::test {

inline net::HostPort free_address() { return {"127.0.0.1", free_port()}; }

// Runs body(rank) on a thread for each rank. The answer of a rank is the text of its error, empty where it has none.
inline std::vector<std::string> errors_on_ranks(int ranks, const std::function<void(int)>& body) {
  std::vector<std::string> errors(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (const std::exception& error) {
        errors[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

// Runs body(bootstrap) on a thread for each rank of one job. `body` throws nothing.
inline void on_bootstraps(int ranks, const std::function<void(net::Bootstrap&)>& body) {
  const std::uint16_t port = free_port();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      net::Bootstrap bootstrap({{"127.0.0.1", port}, rank, ranks, "job"}, std::chrono::seconds(60));
      body(bootstrap);
    });
  for (std::thread& thread : threads) thread.join();
}

// The values of all ranks.
inline std::vector<int> gather(net::Bootstrap& bootstrap, int value, const RankMask& mask = {},
                               std::chrono::milliseconds deadline = std::chrono::seconds(20)) {
  std::vector<int> all(static_cast<std::size_t>(bootstrap.size()), -1);
  bootstrap.all_gather(std::as_bytes(std::span(&value, 1)), std::as_writable_bytes(std::span(all)), mask, deadline);
  return all;
}

}  // namespace ferry::test
