#include "ferry/world.h"

#include <exception>
#include <mutex>
#include <thread>

namespace ferry {

void World::barrier(const RankMask& mask, std::chrono::milliseconds deadline) {
  const std::byte token{1};
  std::vector<std::byte> all(static_cast<std::size_t>(size()));
  all_gather(std::span(&token, 1), all, mask, deadline);
}

void run_worlds(std::span<const std::unique_ptr<World>> worlds, const std::function<void(World&)>& body) {
  std::mutex guard;
  std::exception_ptr first;
  std::vector<std::thread> threads;
  for (const std::unique_ptr<World>& world : worlds) {
    threads.emplace_back([&, rank = world.get()] {
      try {
        body(*rank);
      } catch (...) {
        const std::lock_guard lock(guard);
        if (!first) first = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace ferry
