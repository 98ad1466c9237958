#include "python/src/world/world.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "python/src/base/call_thread.h"
#include "python/src/base/parts.h"
#include "python/src/base/values.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace ferry::python {

std::shared_ptr<World> PyWorld::world() const {
  if (!world_) throw Closed("this World");
  return world_;
}

namespace {

std::vector<std::unique_ptr<PyWorld>> thread_worlds(int ranks) {
  std::vector<std::unique_ptr<PyWorld>> worlds;
  for (std::unique_ptr<World>& world : make_thread_worlds(ranks))
    worlds.push_back(std::make_unique<PyWorld>(std::move(world)));
  return worlds;
}

std::chrono::milliseconds world_deadline(nb::handle seconds) {
  return seconds.is_none() ? kDefaultDeadline : deadline_of("deadline", seconds);
}

void barrier(PyWorld& self, const nb::iterable& mask, const nb::object& deadline) {
  const auto lock = self.guard().enter();
  const std::shared_ptr<World> world = self.world();
  const RankMask ranks = mask_of(mask, world->size());
  const std::chrono::milliseconds limit = world_deadline(deadline);
  call_waiting(
      *world, [&] { world->barrier(ranks, limit); }, [&] { stay_on(self.device()); });
}

std::vector<nb::bytes> all_gather(PyWorld& self, const nb::bytes& mine, const nb::iterable& mask,
                                  const nb::object& deadline) {
  const auto lock = self.guard().enter();
  const std::shared_ptr<World> world = self.world();
  const RankMask ranks = mask_of(mask, world->size());
  const std::chrono::milliseconds limit = world_deadline(deadline);
  const std::span given(static_cast<const std::byte*>(mine.data()), mine.size());
  std::vector<std::byte> all(given.size() * static_cast<std::size_t>(world->size()));
  call_waiting(
      *world, [&] { world->all_gather(given, all, ranks, limit); }, [&] { stay_on(self.device()); });
  std::vector<nb::bytes> gathered;
  for (int rank = 0; rank < world->size(); ++rank)
    gathered.emplace_back(all.data() + static_cast<std::size_t>(rank) * given.size(), given.size());
  return gathered;
}

// From any thread. A child of a fork has the sockets of its parent, and says nothing over them.
void abort(PyWorld& self, const std::string& reason, int missing_rank) {
  self.guard().require_this_process();
  const std::shared_ptr<World> world = self.world();
  const nb::gil_scoped_release without_gil;
  world->abort(reason, missing_rank);
}

nb::dict capabilities(const PyWorld& self) {
  const WorldCapabilities can = self.world()->capabilities();
  nb::dict named;
  named["device_memory"] = can.device_memory;
  named["remote_ranks"] = can.remote_ranks;
  named["skip_a2a"] = can.skip_a2a;
  named["gpus"] = can.gpus;
  named["function_hooks"] = can.function_hooks;
  named["compiled_hooks"] = can.compiled_hooks;
  named["handles"] = can.handles;
  named["row_counts"] = can.row_counts;
  named["asked_counts"] = can.asked_counts;
  named["result_formats"] = can.result_formats;
  named["f16_sums"] = can.f16_sums;
  named["more_outputs"] = can.more_outputs;
  named["overflow"] = can.overflow;
  named["overflow_handles"] = can.overflow_handles;
  named["narrow_weights"] = can.narrow_weights;
  named["late_weights"] = can.late_weights;
  named["dynamic_scales"] = can.dynamic_scales;
  named["counts_dispatch"] = can.counts_dispatch;
  named["returned_weights"] = can.returned_weights;
  named["release"] = can.release;
  named["shared_memory"] = can.shared_memory;
  named["row_orders"] = names_of(can.row_orders);
  return named;
}

}  // namespace

void add_world(nb::module_& module) {
  nb::class_<PyWorld>(module, "World")
      .def_prop_ro("rank", [](const PyWorld& self) { return self.world()->rank(); })
      .def_prop_ro("size", [](const PyWorld& self) { return self.world()->size(); })
      .def_prop_ro("kind", [](const PyWorld& self) { return to_string(self.world()->kind()); })
      .def_prop_ro("device", [](const PyWorld& self) { return to_string(self.device()); })
      .def_prop_ro("closed", &PyWorld::is_closed)
      .def("capabilities", &capabilities)
      .def("barrier", &barrier, "mask"_a, "deadline"_a.none())
      .def("all_gather", &all_gather, "mine"_a, "mask"_a, "deadline"_a.none())
      .def("abort", &abort, "reason"_a, "missing_rank"_a)
      .def("close", [](PyWorld& self) {
        const auto lock = self.guard().enter();
        self.close();
      });
  module.def("make_thread_worlds", &thread_worlds, "ranks"_a);
}

}  // namespace ferry::python
