#include "python/src/world/process_world.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>

#include <cstring>
#include <stop_token>

#include "python/src/base/call_thread.h"
#include "python/src/base/parts.h"
#include "python/src/base/values.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace ferry::python {
namespace {

// `gather` is called by the thread that waits for the call, which keeps it.
AllGather all_gather_of(const nb::callable& gather, PendingCall& pending) {
  return [&gather, &pending](std::span<const std::byte> mine) {
    std::vector<std::byte> all;
    pending.ask([&] {
      const auto gathered = nb::cast<nb::bytes>(gather(nb::bytes(mine.data(), mine.size())));
      all.resize(gathered.size());
      if (!all.empty()) std::memcpy(all.data(), gathered.data(), all.size());
    });
    return all;
  };
}

std::unique_ptr<PyWorld> cpu_process_world(const ProcessPlace& place, const std::optional<nb::callable>& gather,
                                           const std::optional<double>& deadline) {
  const auto make = [](const ProcessPlace& at, std::chrono::milliseconds limit) {
    return make_process_world({.place = at, .deadline = limit});
  };
  return open_process_world(make, place, gather, deadline);
}

// What is left out comes from the launcher's environment, which Python's os.environ writes to as well.
ProcessPlace place_of(const std::string& address, int rank, int size, int local_rank, const std::string& job) {
  ProcessPlace place;
  place.address = address;
  place.rank = rank;
  place.size = size;
  place.local_rank = local_rank;
  place.job = job;
  return place;
}

}  // namespace

std::unique_ptr<PyWorld> open_process_world(const MakeProcessWorld& make, const ProcessPlace& place,
                                            const std::optional<nb::callable>& gather,
                                            const std::optional<double>& deadline, Device device) {
  const std::chrono::milliseconds limit = deadline ? deadline_of("deadline", deadline) : kDefaultDeadline;
  const auto made = std::make_shared<std::unique_ptr<World>>();
  const nb::callable* function = gather ? &*gather : nullptr;
  std::stop_source stop;
  ProcessPlace stoppable = place;
  stoppable.stop = stop.get_token();
  const auto call = [make, at = stoppable, limit, made, function, device](PendingCall& pending) mutable {
    stay_on(device);
    if (function != nullptr) at.all_gather = all_gather_of(*function, pending);
    *made = make(at, limit);
  };
  call_detached(call, [&] { stop.request_stop(); });
  return std::make_unique<PyWorld>(std::move(*made), device);
}

void add_process_world(nb::module_& module) {
  nb::class_<ProcessPlace>(module, "ProcessPlace")
      .def(
          "__init__",
          [](ProcessPlace* self, const std::string& address, int rank, int size, int local_rank,
             const std::string& job) { new (self) ProcessPlace(place_of(address, rank, size, local_rank, job)); },
          "address"_a, "rank"_a, "size"_a, "local_rank"_a, "job"_a);
  module.def("make_process_world", &cpu_process_world, "place"_a, "all_gather"_a.none(), "deadline"_a.none());
}

}  // namespace ferry::python
