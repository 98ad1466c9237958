// The launchers of the kernels over a fabric.
#pragma once

#include <algorithm>
#include <type_traits>

#include "ferry/detail/cuda/kernels/combine_kernel.cuh"
#include "ferry/detail/cuda/kernels/dispatch_kernel.cuh"
#include "ferry/detail/cuda/launch/kernel_setup.h"
#include "ferry/detail/cuda/launch/launch.h"
#include "ferry/detail/cuda/state/cuda_check.h"
#include "ferry/detail/cuda/team/one_text_ops.cuh"
#include "ferry/detail/formats/format_list.h"

namespace ferry::cuda {

struct Grid {
  int blocks = 1;
  bool pdl = false;              // launched while the kernel before it in the stream still runs (I21)
  std::size_t shared_bytes = 0;  // of each block
  int blocks_per_cta = 1;        // of a thread block
  int threads = kThreads;        // of a block
};

// Blocks whose warps take tokens in turn. They wait for nothing, so any number of them does.
inline Grid grid_of_tokens(const Plan& plan, int most_blocks) {
  constexpr std::int64_t kTokensOfBlock = 2 * (kThreads / 32);
  const std::int64_t tokens = std::int64_t{plan.shape.ranks} * plan.shape.max_tokens;
  return {.blocks = static_cast<int>(std::clamp<std::int64_t>(tokens / kTokensOfBlock, 1, most_blocks))};
}

// With `pdl` the kernel waits for the end of the one before it before it touches memory (ptx::await_earlier_kernels).
template <class Params>
void launch(void (*kernel)(Params), const Params& params, const Grid& grid, cudaStream_t stream) {
  cudaLaunchAttribute beside{};
  beside.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  beside.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(grid.blocks / grid.blocks_per_cta));
  config.blockDim = dim3(static_cast<unsigned>(grid.threads), static_cast<unsigned>(grid.blocks_per_cta));
  config.dynamicSmemBytes = grid.shared_bytes * static_cast<std::size_t>(grid.blocks_per_cta);
  config.stream = stream;
  config.attrs = &beside;
  config.numAttrs = grid.pdl ? 1 : 0;
  cuda_check(cudaLaunchKernelEx(&config, kernel, params), "cudaLaunchKernelEx");
}

template <class Maker, DeviceFabric F, RowOrder kOrder>
int prepare_dispatch(int threads, std::size_t shared_bytes) {
  return prepare_kernel(&dispatch_kernel<Maker, F, false, kOrder>, threads, shared_bytes);
}
template <class Maker, DeviceFabric F, RowOrder kOrder>
bool prepare_paired_dispatch(int threads, std::size_t shared_bytes) {
  if constexpr (F::kHasRemoteRanks)
    return false;
  else {
    const auto kernel = &dispatch_kernel<Maker, F, true, kOrder>;
    return may_have_shared(reinterpret_cast<const void*>(kernel), 2 * shared_bytes) &&
           prepare_kernel(kernel, 2 * threads, 2 * shared_bytes) != 0;
  }
}
template <class Maker, DeviceFabric F, RowOrder kOrder>
void launch_dispatch(const DispatchParams& params, const DispatchPolicy& policy, cudaStream_t stream) {
  const Grid grid{policy.blocks, policy.pdl, params.block_bytes, policy.blocks_per_cta};
  if constexpr (!F::kHasRemoteRanks)
    if (policy.blocks_per_cta == 2) return launch(&dispatch_kernel<Maker, F, true, kOrder>, params, grid, stream);
  launch(&dispatch_kernel<Maker, F, false, kOrder>, params, grid, stream);
}

// Calls visit.operator()<order>().
template <class Visit>
decltype(auto) with_order(RowOrder order, const Visit& visit) {
  using enum RowOrder;
  if (order == by_source) return visit.template operator()<by_source>();
  if (order == padded) return visit.template operator()<padded>();
  if (order == in_place) return visit.template operator()<in_place>();
  return visit.template operator()<by_expert>();
}
// The least of what prepare(order) returns for each of `orders`, and for by_expert, whose kernel also runs halves.
template <class Prepare>
auto prepare_orders(RowOrders orders, const Prepare& prepare) {
  auto least = prepare(RowOrder::by_expert);
  for (const RowOrder order : {RowOrder::by_source, RowOrder::padded, RowOrder::in_place})
    if (orders.has(order)) least = std::min(least, prepare(order));
  return least;
}

template <class Maker, DeviceFabric F>
DispatchLauncher dispatch_launcher() {
  static_assert(MessageMaker<Maker, Step<F, SyncedTeam, WarpLookup, TeamOps>>);
  return {[](int threads, std::size_t shared_bytes, RowOrders orders) {
            return prepare_orders(orders, [&](RowOrder order) {
              return with_order(
                  order, [&]<RowOrder kOrder> { return prepare_dispatch<Maker, F, kOrder>(threads, shared_bytes); });
            });
          },
          [](int threads, std::size_t shared_bytes, RowOrders orders) {
            return prepare_orders(orders, [&](RowOrder order) {
              return with_order(order, [&]<RowOrder kOrder> {
                return prepare_paired_dispatch<Maker, F, kOrder>(threads, shared_bytes);
              });
            });
          },
          [](const DispatchParams& params, const DispatchPolicy& policy, cudaStream_t stream) {
            const bool is_whole = params.sends && params.receives;
            with_order(is_whole ? params.out.order : RowOrder::by_expert,
                       [&]<RowOrder kOrder> { launch_dispatch<Maker, F, kOrder>(params, policy, stream); });
          }};
}

// Only results in bf16 are rows as they are.
template <TokenFormat Results>
inline constexpr bool kMayCopyResults = std::is_same_v<Results, Bf16>;

// The ops of a combine without pipeline. Over NVSHMEM functions have 64 registers (FERRY_NVSHMEM_REGISTERS), too few
// for that of OneTextOps.
template <DeviceFabric F, TokenFormat Results>
using OpsWithoutPipeline =
    std::conditional_t<std::is_same_v<Results, Bf16> && !F::kHasRemoteRanks, OneTextOps, OpsOfResults<Results>>;

// Calls visit.operator()<code>().
template <class Visit>
decltype(auto) with_code(CombineCode code, const Visit& visit) {
  using enum CombineCode;
  if (code == weighed) return visit.template operator()<weighed>();
  if (code == kept) return visit.template operator()<kept>();
  return visit.template operator()<plain>();
}
// The least of what prepare(code) returns for the kernels that an exchange needs.
template <class Prepare>
int prepare_codes(bool weighed, const Prepare& prepare) {
  if (weighed) return prepare.template operator()<CombineCode::weighed>();
  return std::min(prepare.template operator()<CombineCode::plain>(), prepare.template operator()<CombineCode::kept>());
}

// The kernels of a combine, without and with pipeline. Returns the blocks of a multiprocessor.
template <DeviceFabric F, CombineCode kCode, TokenFormat Results>
int prepare_combine(int threads, std::size_t shared_bytes, std::size_t pipeline_bytes) {
  int blocks = prepare_kernel(&combine_kernel<F, kCode, OpsWithoutPipeline<F, Results>>, threads, shared_bytes);
  const auto prepare = [&](auto kernel) { blocks = std::min(blocks, prepare_kernel(kernel, threads, pipeline_bytes)); };
  if constexpr (!F::kHasRemoteRanks)
    if (pipeline_bytes != 0) {
      prepare(&combine_kernel<F, kCode, OpsOfResults<Results, true>>);
      if constexpr (kMayCopyResults<Results>) prepare(&combine_kernel<F, kCode, ResultCopyOps>);
    }
  return blocks;
}
template <DeviceFabric F, CombineCode kCode, TokenFormat Results>
void launch_combine(const CombineParams& params, const Grid& grid, cudaStream_t stream) {
  if constexpr (!F::kHasRemoteRanks && kMayCopyResults<Results>)
    if (params.roles.copies_rows) return launch(&combine_kernel<F, kCode, ResultCopyOps>, params, grid, stream);
  if constexpr (!F::kHasRemoteRanks)
    if (params.roles.pipelined)
      return launch(&combine_kernel<F, kCode, OpsOfResults<Results, true>>, params, grid, stream);
  launch(&combine_kernel<F, kCode, OpsWithoutPipeline<F, Results>>, params, grid, stream);
}

// The combine for results that travel in the format `Results`.
template <DeviceFabric F, TokenFormat Results = Bf16>
CombineLauncher combine_launcher() {
  return {[](int threads, std::size_t shared_bytes, std::size_t pipeline_bytes, bool weighed) {
            return prepare_codes(weighed, [&]<CombineCode kCode> {
              return prepare_combine<F, kCode, Results>(threads, shared_bytes, pipeline_bytes);
            });
          },
          [](const CombineParams& params, const CombinePolicy& policy, std::size_t shared_bytes, cudaStream_t stream) {
            const Grid grid{policy.blocks, policy.pdl, shared_bytes};
            with_code(params.code, [&]<CombineCode kCode> { launch_combine<F, kCode, Results>(params, grid, stream); });
          },
          !F::kHasRemoteRanks, !F::kHasRemoteRanks && kMayCopyResults<Results>};
}

// dispatch_launcher over one of the library's fabrics: of an Encoder of one of its formats, or of another MessageMaker.
// CMake makes a source for each, which defines it (src/cuda/kernels/*.cu.in). So they compile beside each other, and a
// table of launchers only declares it.
template <class Maker, DeviceFabric F>
DispatchLauncher dispatch_instance();
// The library's combine over one of its fabrics, without hooks, for results in one of ResultFormats. A source for each
// defines it (combine_instance.cu.in).
template <TokenFormat Results, DeviceFabric F>
CombineLauncher combine_instance();
// The library's small kernels over one of its fabrics (small_kernels.cu.in), and its receiving kernels (receive.cu.in).
template <DeviceFabric F>
SmallLaunchers small_instance();
template <DeviceFabric F>
ReceiveLaunchers receive_instance();

// The library's combine over one of its fabrics for results in the format; null where it is none of ResultFormats.
template <DeviceFabric F>
const CombineLauncher* find_combine_instance(const char* result_format) {
  static const auto kLaunchers =
      ResultFormats::table([]<class Fmt>(std::type_identity<Fmt>) { return combine_instance<Fmt, F>(); });
  return ResultFormats::find(kLaunchers, result_format);
}

}  // namespace ferry::cuda
