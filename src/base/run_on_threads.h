// A thread for each of several bodies.
#pragma once

#include <cstddef>
#include <functional>

namespace ferry {

// body(0) .. body(count - 1), each on a thread of its own; all are awaited. Throws the first error by time, since the
// others are usually its consequences; Error(system) where a thread cannot be started.
void run_on_threads(std::size_t count, const std::function<void(std::size_t)>& body);

}  // namespace ferry
