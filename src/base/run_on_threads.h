// Runs several bodies, each on a thread of its own.
#pragma once

#include <cstddef>
#include <functional>

namespace ferry {

// Runs body(0) .. body(count - 1), each on a thread of its own, and joins all. Throws the error that came first, since
// the others are usually its consequences. Throws Error(system) if a thread cannot be started.
void run_on_threads(std::size_t count, const std::function<void(std::size_t)>& body);

}  // namespace ferry
