// Worlds of transports that are shared libraries of their own (python/transports), loaded when they are first asked
// for.
#include <dlfcn.h>
#include <ferry/error.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <unistd.h>

#include <tuple>

#include "python/src/base/call_thread.h"
#include "python/src/base/parts.h"
#include "python/src/base/values.h"
#include "python/src/cuda/cuda_parts.h"
#include "python/src/world/process_world.h"
#include "python/transports/transport.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace ferry::python {
namespace {

// The function of that name in the library, which stays loaded. `visibility` is RTLD_GLOBAL where other libraries must
// see its symbols, RTLD_LOCAL where they must not: modules that are imported later would be bound to them. Throws
// Error(unsupported) where the library or one that it needs is not there: `what` is the transport, `how` says what
// gives a build that has it.
void* function_of_transport(const std::string& library, const char* name, int visibility, const std::string& what,
                            const std::string& how) {
  if (access(library.c_str(), R_OK) != 0)
    throw Error(ErrorKind::unsupported, "this build of Ferry has no ranks over " + what + ": " + how);
  void* const loaded = dlopen(library.c_str(), RTLD_NOW | visibility);
  void* const found = loaded == nullptr ? nullptr : dlsym(loaded, name);
  if (found == nullptr)
    throw Error(ErrorKind::unsupported, "ranks over " + what + " need a library that cannot be loaded (" + dlerror() +
                                            "). Install it again, or build Ferry again: " + how);
  return found;
}

// This process's job. One thread at a time is in a call of it.
class PyShmemJob {
 public:
  static constexpr std::chrono::minutes kPatienceAtTheEnd{10};  // others may have work left

  explicit PyShmemJob(ShmemTransport* job) : job_(job) {}

  std::unique_ptr<PyWorld> make_world(int nodes, const std::optional<double>& deadline) {
    const auto lock = guard_.enter();
    const std::chrono::milliseconds limit = deadline ? deadline_of("deadline", deadline) : kDefaultDeadline;
    const auto made = std::make_shared<std::unique_ptr<World>>();
    call_detached([job = job_, nodes, limit, made](PendingCall&) { *made = job->make_world(nodes, limit); });
    return std::make_unique<PyWorld>(std::move(*made));
  }
  // Not where a rank is missing, which would be waited for: the process just leaves then (shmem_transport.cpp).
  void finish() {
    const auto lock = guard_.enter();
    if (has_shmem_lost_a_rank()) return;
    call_detached([job = job_](PendingCall&) { job->finish(kPatienceAtTheEnd); });
  }

 private:
  ShmemTransport* job_;
  Guard guard_{"this OpenSHMEM job"};
};

std::unique_ptr<PyShmemJob> start_shmem(const std::string& library, std::size_t heap_bytes,
                                        const std::optional<double>& deadline) {
  // RTLD_GLOBAL: the library replaces functions of UCX, which the system looks up among what all libraries see.
  auto* const start = reinterpret_cast<StartShmem*>(function_of_transport(
      library, kStartShmem, RTLD_GLOBAL, "OpenSHMEM",
      "`pip install .` in a clone has them where it finds OpenSHMEM (Debian: libopenmpi-dev, openmpi-bin)"));
  const std::chrono::milliseconds limit = deadline ? deadline_of("deadline", deadline) : std::chrono::minutes(1);
  const auto job = std::make_shared<ShmemTransport*>();
  call_detached([start, heap_bytes, limit, job](PendingCall&) { *job = start(heap_bytes, limit); });
  return std::make_unique<PyShmemJob>(*job);
}

// (nodes, ranks per node, bytes of the heap, whether ranks may share a GPU)
using PyNodes = std::tuple<int, int, std::size_t, bool>;

std::unique_ptr<PyWorld> nvshmem_world(const std::string& library, const ProcessPlace& place, int device,
                                       const PyNodes& nodes, const std::optional<nb::callable>& gather,
                                       const std::optional<double>& deadline) {
  const int gpu = gpu_of_process(place, device);
  auto* const make = reinterpret_cast<MakeNvshmemWorld*>(
      function_of_transport(library, kMakeNvshmemWorld, RTLD_LOCAL, "NVSHMEM",
                            "`NVSHMEM_HOME=FOLDER pip install . -Ccmake.define.FERRY_NVSHMEM=ON`, where nvcc 13 is, "
                            "makes one that has them"));
  NvshmemStart start{.device = gpu};
  std::tie(start.nodes, start.ranks_per_node, start.heap_bytes, start.share_gpus) = nodes;
  const auto open = [make, start](const ProcessPlace& at, std::chrono::milliseconds limit) mutable {
    start.place = at;
    start.deadline = limit;
    std::unique_ptr<ProcessWorld> world(make(start));
    nothing_on_gpu(start.device);
    return world;
  };
  return open_process_world(open, place, gather, deadline, Device::cuda(gpu));
}

}  // namespace

void add_transports(nb::module_& module) {
  nb::class_<PyShmemJob>(module, "ShmemJob")
      .def("make_world", &PyShmemJob::make_world, "nodes"_a, "deadline"_a.none())
      .def("finish", &PyShmemJob::finish);
  module.def("start_shmem", &start_shmem, "library"_a, "heap_bytes"_a, "deadline"_a.none());
  module.def("make_nvshmem_world", &nvshmem_world, "library"_a, "place"_a, "device"_a, "nodes"_a, "all_gather"_a.none(),
             "deadline"_a.none());
}

}  // namespace ferry::python
