// HookPolicy: how the steps get what a caller may compute for them: a router weight, the input scale, and what becomes
// of a sum. A fabric names its policy (`Hooks`) and carries it (`hooks()`). So a kernel knows its hooks when it is
// compiled, and a CPU rank takes function pointers with each call. Each member has a meaning without a hook, too.
#pragma once

#include <concepts>

#include "ferry/detail/protocol/contracts/args.h"

namespace ferry {

// `kHasRouterWeight`: the policy computes router weights, so the caller gives no array of them.
template <class H>
concept HookPolicy = requires(const H& hooks, const Weights& weights, const DispatchArgs& in, const CombineOut& out,
                              RowSink& sink) {
  { H::kHasRouterWeight } -> std::convertible_to<bool>;
  { hooks.router_weight(weights, int{}, int{}) } -> std::same_as<float>;
  { hooks.input_scale(in) } -> std::same_as<float>;
  hooks.set_epilogue(out, sink);
};

// Function pointers that come with the arguments of each call: what CPU ranks have.
struct PointerHooks {
  static constexpr bool kHasRouterWeight = false;
  FERRY_HD static float router_weight(const Weights& weights, int token, int k) { return weights.at(token, k); }
  FERRY_HD static float input_scale(const DispatchArgs& in) { return in.scale(); }
  FERRY_HD static void set_epilogue(const CombineOut& out, RowSink& sink) {
    sink.epilogue = out.epilogue;
    sink.context = out.context;
  }
};
static_assert(HookPolicy<PointerHooks>);

}  // namespace ferry
