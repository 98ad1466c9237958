// A transport that needs a library of others: a shared library of its own, which the Python module loads when it is
// first asked for. So the module needs none of theirs. Both are of one build and have the library's code inside; C++
// types and exceptions pass between them.
#pragma once

#include <ferry/worlds/process_world.h>

#include <chrono>
#include <cstddef>
#include <memory>

namespace ferry::python {

// This process in a job of OpenSHMEM, as ShmemJob (ferry/shmem_world.h). It lives as long as the process.
class ShmemTransport {
 public:
  virtual ~ShmemTransport() = default;
  virtual std::unique_ptr<ProcessWorld> make_world(int nodes, std::chrono::milliseconds deadline) = 0;
  virtual void finish(std::chrono::milliseconds deadline) = 0;
};

// Of NvshmemOptions (ferry/cuda/nvshmem_world.h).
struct NvshmemStart {
  ProcessPlace place{};
  int device = -1;
  int nodes = 0;
  int ranks_per_node = 0;
  std::size_t heap_bytes = 0;
  bool share_gpus = false;
  std::chrono::milliseconds deadline{};
};

// What the shared libraries have, by these names. The caller owns a world.
using StartShmem = ShmemTransport*(std::size_t heap_bytes, std::chrono::milliseconds deadline);
inline constexpr const char* kStartShmem = "ferry_start_shmem";
using MakeNvshmemWorld = ProcessWorld*(const NvshmemStart& start);
inline constexpr const char* kMakeNvshmemWorld = "ferry_make_nvshmem_world";

}  // namespace ferry::python
