// The wire of CPU ranks: how fast all of them at once copy from their own memory to a peer's.
#pragma once

namespace ferry::app {

struct WireSpeed {
  double bytes_per_second = 0;  // of all threads together, reads and writes both counted
  const char* method = "";      // the fastest of those tried
  int threads = 0;
};

// The median of several repetitions, each as slow as its slowest thread. Takes a fraction of a second.
WireSpeed measure_wire(int threads);

}  // namespace ferry::app
