// PyWorld: a rank's end of a world, as Python holds it. Exchanges keep the world itself alive.
#pragma once

#include <ferry/tensor.h>
#include <ferry/world.h>
#include <nanobind/nanobind.h>

#include <memory>
#include <new>

#include "python/src/base/guard.h"

namespace ferry::python {

class PyWorld {
 public:
  // `device`: where the arrays of its exchanges lie.
  explicit PyWorld(std::unique_ptr<World> world, Device device = Device::cpu())
      : world_(std::move(world)), device_(device) {}
  // The end of a world of GPUs may wait for kernels, and those for another rank's thread: so it comes without the GIL.
  // In a child process of a fork it is left where it is.
  ~PyWorld() {
    if (!guard_.is_of_this_process()) new (std::nothrow) std::shared_ptr<World>(world_);
    close();
  }
  PyWorld(const PyWorld&) = delete;
  PyWorld& operator=(const PyWorld&) = delete;

  // A reference of its own, for calls without the GIL. Throws Closed after close().
  std::shared_ptr<World> world() const;
  Guard& guard() { return guard_; }
  void close() {
    const nanobind::gil_scoped_release without_gil;
    world_.reset();
  }
  bool is_closed() const { return world_ == nullptr; }
  Device device() const { return device_; }

 private:
  std::shared_ptr<World> world_;
  Device device_;
  Guard guard_{"this World"};
};

}  // namespace ferry::python
