// PyWorld: a rank's end of a world, as Python holds it. Exchanges keep the world itself alive.
#pragma once

#include <ferry/world.h>

#include <memory>

#include "guard.h"

namespace ferry::python {

class PyWorld {
 public:
  explicit PyWorld(std::unique_ptr<World> world) : world_(std::move(world)) {}
  PyWorld(const PyWorld&) = delete;
  PyWorld& operator=(const PyWorld&) = delete;

  // A reference of its own, for calls without the GIL. Throws ValueError after close().
  std::shared_ptr<World> world() const;
  Guard& guard() { return guard_; }
  void close() { world_.reset(); }
  bool is_closed() const { return world_ == nullptr; }

 private:
  std::shared_ptr<World> world_;
  Guard guard_{"this World"};
};

}  // namespace ferry::python
