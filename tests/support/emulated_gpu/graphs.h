// Captures of emulated streams, and the graphs that they become.
#pragma once

#include <functional>
#include <vector>

#include "support/emulated_gpu/machine.h"

namespace ferry::emulated {

// Each operation enqueues itself on the stream of a launch.
struct Graph {
  std::vector<std::function<void(Stream&)>> operations;
};

// False: the stream is not captured.
bool add_to_capture(const Stream& stream, std::function<void(Stream&)> operation);

bool is_anything_captured();
// Calls that a capture forbids make it invalid, as CUDA does. Whether there was one: of any stream of the device; by
// this thread, unless it is relaxed.
bool spoil_captures(int device);
bool spoil_own_captures();
// The runtime's. CUDA may crash where a call is given such a stream; here the call fails.
bool was_destroyed(const Stream* stream);

}  // namespace ferry::emulated
