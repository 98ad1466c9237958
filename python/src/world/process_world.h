// Worlds whose ranks are processes, of any device.
#pragma once

#include <ferry/worlds/process_world.h>
#include <nanobind/nanobind.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>

#include "python/src/world/world.h"

namespace ferry::python {

using MakeProcessWorld =
    std::function<std::unique_ptr<ProcessWorld>(const ProcessPlace& place, std::chrono::milliseconds deadline)>;

// Collective over the processes. `make` runs on another thread without the GIL, owns all that it uses, and may outlive
// this call where a signal handler raises. `gather(bytes) -> bytes`, where there is one, is called by this thread.
std::unique_ptr<PyWorld> open_process_world(const MakeProcessWorld& make, const ProcessPlace& place,
                                            const std::optional<nanobind::callable>& gather,
                                            const std::optional<double>& deadline, Device device = Device::cpu());

}  // namespace ferry::python
