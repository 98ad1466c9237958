#include "base/run_on_threads.h"

#include <fmt/core.h>

#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "ferry/error.h"

namespace ferry {

void run_on_threads(std::size_t count, const std::function<void(std::size_t)>& body) {
  std::exception_ptr first;
  std::mutex guard;
  const auto note = [&](std::exception_ptr error) {
    const std::lock_guard lock(guard);
    if (!first) first = std::move(error);
  };
  std::vector<std::thread> threads;
  threads.reserve(count);
  try {
    for (std::size_t i = 0; i < count; ++i)
      threads.emplace_back([&, i] {
        try {
          body(i);
        } catch (...) {
          note(std::current_exception());
        }
      });
  } catch (const std::system_error& error) {
    note(std::make_exception_ptr(Error(ErrorKind::system, fmt::format("the system refused thread {} of {}: {}",
                                                                      threads.size() + 1, count, error.what()))));
  }
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace ferry
