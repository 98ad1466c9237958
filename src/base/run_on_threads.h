// Runs several bodies, each on a thread of its own.
#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <vector>

namespace ferry {

// The error of each body; null: none.
struct ThreadErrors {
  std::vector<std::exception_ptr> of;
  std::size_t first = 0;  // that came first
  bool any() const { return !of.empty() && of[first] != nullptr; }
};

// Runs body(0) .. body(count - 1), each on a thread of its own, and joins all. If a thread cannot be started, the error
// of its body is Error(system), and not_started(i) is called for it and for all after it before the others are joined.
ThreadErrors collect_on_threads(std::size_t count, const std::function<void(std::size_t)>& body,
                                const std::function<void(std::size_t)>& not_started = {});

// The same. Throws the error that came first, since the others are usually its consequences.
void run_on_threads(std::size_t count, const std::function<void(std::size_t)>& body);

}  // namespace ferry
