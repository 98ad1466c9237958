#include "base/run_on_threads.h"

#include <fmt/core.h>

#include <mutex>
#include <system_error>
#include <thread>

#include "ferry/error.h"

namespace ferry {

ThreadErrors collect_on_threads(std::size_t count, const std::function<void(std::size_t)>& body,
                                const std::function<void(std::size_t)>& not_started) {
  ThreadErrors errors{std::vector<std::exception_ptr>(count)};
  std::mutex guard;
  const auto note = [&](std::size_t i, std::exception_ptr error) {
    const std::lock_guard lock(guard);
    if (!errors.any()) errors.first = i;
    errors.of[i] = std::move(error);
  };
  std::vector<std::thread> threads;
  threads.reserve(count);
  try {
    for (std::size_t i = 0; i < count; ++i)
      threads.emplace_back([&, i] {
        try {
          body(i);
        } catch (...) {
          note(i, std::current_exception());
        }
      });
  } catch (const std::system_error& error) {
    const std::size_t started = threads.size();
    note(started, std::make_exception_ptr(Error(ErrorKind::system, fmt::format("the system refused thread {} of {}: {}",
                                                                               started + 1, count, error.what()))));
    for (std::size_t i = started; not_started && i < count; ++i) not_started(i);
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

void run_on_threads(std::size_t count, const std::function<void(std::size_t)>& body) {
  const ThreadErrors errors = collect_on_threads(count, body);
  if (errors.any()) std::rethrow_exception(errors.of[errors.first]);
}

}  // namespace ferry
