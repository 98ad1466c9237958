// CompiledExchange: an exchange whose kernels are compiled in your own .cu file: for a token format of your own, for
// hooks of your own, or for both. Format and hooks are inlined: no kernel calls them through a pointer.
//
// A CompiledExchange is for worlds whose ranks store to each other. A world of make_nvshmem_world may have several
// nodes, for which there is CompiledNvshmemExchange (compiled_nvshmem_exchange.cuh).
//
// Compile with nvcc and link ferry::cuda_kernels. It brings the headers of the kernels, the library and --fmad=false:
// codes and sums are the same bytes as on the CPU only where nothing is contracted.
#pragma once

#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

#include "ferry/detail/cuda/fabric/compiled_hooks.cuh"
#include "ferry/detail/cuda/fabric/direct_fabric.cuh"
#include "ferry/detail/cuda/launch/compiled_access.h"
#include "ferry/detail/cuda/launch/f16_launch.cuh"
#include "ferry/detail/cuda/launch/launch.cuh"
#include "ferry/detail/formats/format_list.h"
#include "ferry/exchange.h"

namespace ferry::cuda {

// `Hooks` is a trivially copyable struct of at most 128 bytes with one or more of these, as const __device__ member
// functions or as members that can be called so. Pointers in it are to memory that the rank's GPU can read; what they
// point to is read when the kernels run.
//
//   float router_weight(int token, int k)
//     In place of topk_weights, which are then refused: in dispatch with by_rank, in combine's own sum with exact. May
//     be called more than once for an entry.
//   float input_scale()
//     In place of DispatchInput::input_scale: nvfp4's; finite and > 0, the same on all ranks.
//   void epilogue(int token, int column, const float* values, int count)
//     In place of the store of a sum; CombineOutput::tokens may then be left out. It gets `count` unrounded float32
//     sums of a token from `column` on: 8 of them, from a multiple of 8. Each column of a token comes once, tokens in
//     any order, from any thread. A barrier of threads in it would hang.
//
// `Fmt` is a format of the library or one of your own (docs/adding-a-format.md). Its encode() runs in threads of a GPU.
//
// `Wire` is the fabric of the kernels: how they reach other ranks. DirectFabric stores to ranks whose memory is mapped.
//
// `Results` is the format in which results travel home: one of ResultFormats (format_list.h), or one of your own that
// encodes columns and decodes eight at a time (ColumnFormat, DecodesColumns). Unless it is Bf16 the exchange has it,
// whatever `options.result_format` says. Without hooks `options.result_format` may also name any of result_formats():
// then the library's kernels carry the results.
template <TokenFormat Fmt, class Hooks = NoHooks, class Wire = DirectFabric<>, TokenFormat Results = Bf16>
class CompiledExchange {
  static_assert(Fmt{}.scale_bytes() == 0 || Fmt{}.scale_bytes() == 1 || Fmt{}.scale_bytes() == 4,
                "on a GPU a scale has 1 byte or 4");
  static constexpr bool kHasHooks = HasRouterWeight<Hooks> || HasInputScale<Hooks> || HasEpilogue<Hooks>;
  static_assert(kHasHooks || std::is_same_v<Hooks, NoHooks>,
                "Hooks has none of router_weight, input_scale and epilogue");

 public:
  // As Exchange's, of a world of make_cuda_worlds or make_cuda_process_world, or of make_nvshmem_world where all ranks
  // are one node. A CompiledNvshmemExchange takes any world of make_nvshmem_world. The exchange has the format Fmt,
  // whatever `options.format` says. Loads the kernels on all ranks. Throws also Error(unsupported) for a world of
  // another kind.
  CompiledExchange(World& world, const Shape& shape, ExchangeOptions options = {})
      : exchange_(CompiledAccess::make(checked(world), shape, completed(options), launchers())) {
    if constexpr (kHasHooks) CompiledAccess::require_hooks(exchange_);
  }

  // As Exchange's. The hooks are copied before a call returns. Throws Error(invalid_argument) besides where an argument
  // and a hook give the same thing.
  void dispatch_async(const DispatchInput& in, const Hooks& hooks, const CallOptions& call = {}) {
    check(in);
    set(hooks);
    exchange_.dispatch_async(in, call);
  }
  void dispatch_wait(const DispatchOutput& out, const CallOptions& call = {}) { exchange_.dispatch_wait(out, call); }
  void dispatch(const DispatchInput& in, const DispatchOutput& out, const Hooks& hooks, const CallOptions& call = {}) {
    check(in);
    set(hooks);
    exchange_.dispatch(in, out, call);
  }
  void combine_async(const CombineInput& in, const CallOptions& call = {}) {
    check(in);
    exchange_.combine_async(in, call);
  }
  void combine_wait(const CombineOutput& out, const Hooks& hooks, const CallOptions& call = {}) {
    set(hooks);
    exchange_.combine_wait(completed(out), call);
  }
  void combine(const CombineInput& in, const CombineOutput& out, const Hooks& hooks, const CallOptions& call = {}) {
    check(in);
    set(hooks);
    exchange_.combine(in, completed(out), call);
  }

  // The same without hooks.
  void dispatch_async(const DispatchInput& in, const CallOptions& call = {}) requires(!kHasHooks) {
    exchange_.dispatch_async(in, call);
  }
  void dispatch(const DispatchInput& in, const DispatchOutput& out, const CallOptions& call = {}) requires(!kHasHooks) {
    exchange_.dispatch(in, out, call);
  }
  void combine_wait(const CombineOutput& out, const CallOptions& call = {}) requires(!kHasHooks) {
    exchange_.combine_wait(out, call);
  }
  void combine(const CombineInput& in, const CombineOutput& out, const CallOptions& call = {}) requires(!kHasHooks) {
    exchange_.combine(in, out, call);
  }

  // For add_to_mask, stats and all that takes no hooks. Where there are hooks, it refuses the calls that read them with
  // Error(invalid_argument).
  Exchange& exchange() { return exchange_; }
  const Exchange& exchange() const { return exchange_; }

 private:
  // Kernels without hooks are the library's own, but for the dispatch that encodes, which holds the format.
  using KernelFabric = typename Wire::template WithHooks<Hooks>;
  static CombineLauncher combine_kernels() {
    if constexpr (kHasHooks || !ResultFormats::template kHas<Results>)
      return combine_launcher<KernelFabric, Results>();
    else
      return combine_instance<Results, Wire>();
  }
  static const CombineLauncher* find_combine(const char* result_format) {
    static const CombineLauncher kCombine = combine_kernels();
    if (result_format == std::string_view(Results{}.name())) return &kCombine;
    return kHasHooks ? nullptr : find_combine_instance<Wire>(result_format);
  }
  static const CombineLauncher* find_f16_combine(const char* result_format) {
    return kHasHooks ? nullptr : find_f16_combine_instance<Wire>(result_format);
  }
  static DispatchLauncher given_rows() {
    if constexpr (kHasHooks)
      return dispatch_launcher<GivenRows, KernelFabric>();
    else
      return dispatch_instance<GivenRows, Wire>();
  }
  static const Launchers& launchers() {
    static const DispatchLauncher kDispatch = dispatch_launcher<Encoder<Fmt>, KernelFabric>();
    static const DispatchLauncher kGivenRows = given_rows();
    // These call no hooks.
    static const SmallLaunchers kSmall = small_instance<Wire>();
    static const ReceiveLaunchers kReceive = receive_instance<Wire>();
    static const Launchers kLaunchers{[](const char*) { return &kDispatch; },  // options.format is Fmt's
                                      &kGivenRows,
                                      &find_combine,
                                      &kSmall,
                                      &kReceive,
                                      Wire::kName,
                                      nullptr,
                                      nullptr,
                                      &find_f16_combine,
                                      true};
    return kLaunchers;
  }
  // Refuses worlds that are not of GPUs. A world of GPUs checks in make_steps, on all ranks, that these kernels reach
  // them.
  static World& checked(World& world) {
    if (world.capabilities().gpus) return world;
    throw Error(ErrorKind::unsupported, "rank " + std::to_string(world.rank()) +
                                            ": kernels of the program itself need a world of GPUs (make_cuda_worlds, "
                                            "make_cuda_process_world, make_nvshmem_world); this one is " +
                                            world.backend());
  }
  static ExchangeOptions completed(ExchangeOptions options) {
    options.format = any_format<Fmt>();
    if constexpr (!std::is_same_v<Results, Bf16>) options.result_format = any_format<Results>();
    return options;
  }
  CombineOutput completed(CombineOutput out) const {
    refuse_pointer(out.epilogue != nullptr, "epilogue");
    if constexpr (HasEpilogue<Hooks>)
      out.epilogue = [](void*, int, int, const float*, int) {};  // checked, never called
    return out;
  }
  void check(const DispatchInput& in) const {
    refuse_pointer(in.router_weight != nullptr, "router_weight");
    refuse_both(HasRouterWeight<Hooks> && in.topk_weights, "topk_weights", "router_weight");
    refuse_both(HasInputScale<Hooks> && in.input_scale != nullptr, "input_scale", "input_scale");
  }
  void check(const CombineInput& in) const {
    refuse_pointer(in.router_weight != nullptr, "router_weight");
    refuse_both(HasRouterWeight<Hooks> && in.topk_weights, "topk_weights", "router_weight");
  }
  void refuse_pointer(bool given, const char* name) const {
    if (given)
      throw Error(ErrorKind::invalid_argument, "rank " + std::to_string(exchange_.rank()) + ": " + name +
                                                   " is given as a pointer; a CompiledExchange takes it as a hook");
  }
  void refuse_both(bool both, const char* argument, const char* hook) const {
    if (both)
      throw Error(ErrorKind::invalid_argument, "rank " + std::to_string(exchange_.rank()) + ": " + argument +
                                                   " is given, and so is the hook " + hook + "; give one");
  }
  void set(const Hooks& hooks) {
    HookBytes bytes;
    std::memcpy(bytes.bytes, &hooks, sizeof hooks);
    CompiledAccess::set_hooks(exchange_, bytes);
  }

  Exchange exchange_;
};

}  // namespace ferry::cuda
