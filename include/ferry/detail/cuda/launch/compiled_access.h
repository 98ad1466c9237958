// How CompiledExchange makes an exchange of kernels that the program has compiled, and hands them its hooks. The public
// interface has neither.
#pragma once

#include "ferry/detail/cuda/launch/launch.h"
#include "ferry/exchange.h"

namespace ferry::cuda {

class CompiledAccess {
 public:
  // As Exchange's constructor. `kernels` must outlive the exchange.
  static Exchange make(World& world, const Shape& shape, const ExchangeOptions& options, const Launchers& kernels) {
    return Exchange(world, shape, options, &kernels);
  }
  // Copied: what the hooks read in the next call.
  static void set_hooks(Exchange& exchange, const HookBytes& hooks) { exchange.set_hooks(hooks); }
  // From now on a call that reads hooks is refused where none were set for it.
  static void require_hooks(Exchange& exchange) { exchange.require_hooks(); }
};

}  // namespace ferry::cuda
