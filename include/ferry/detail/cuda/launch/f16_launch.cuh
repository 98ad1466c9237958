// The launcher of the combine kernels of rows, bias or sums that are f16. They have no pipeline.
#pragma once

#include <algorithm>
#include <type_traits>

#include "ferry/detail/cuda/launch/launch.cuh"
#include "ferry/detail/cuda/team/f16_ops.cuh"
#include "ferry/detail/formats/format_list.h"

namespace ferry::cuda {

template <DeviceFabric F, TokenFormat Results>
CombineLauncher f16_combine_launcher() {
  using Ops = F16Ops<Results>;
  return {[](int threads, std::size_t shared_bytes, std::size_t, bool weighed) {
            return prepare_codes(weighed, [&]<CombineCode kCode> {
              return prepare_kernel(&combine_kernel<F, kCode, Ops>, threads, shared_bytes);
            });
          },
          [](const CombineParams& params, const CombinePolicy& policy, std::size_t shared_bytes, cudaStream_t stream) {
            const Grid grid{policy.blocks, policy.pdl, shared_bytes};
            with_code(params.code,
                      [&]<CombineCode kCode> { launch(&combine_kernel<F, kCode, Ops>, params, grid, stream); });
          },
          false};
}

// The library's over one of its fabrics. A source for each format of results defines it (f16_combine_instance.cu.in).
template <TokenFormat Results, DeviceFabric F>
CombineLauncher f16_combine_instance();

// For results in the format; null where it is none of ResultFormats.
template <DeviceFabric F>
const CombineLauncher* find_f16_combine_instance(const char* result_format) {
  static const auto kLaunchers =
      ResultFormats::table([]<class Fmt>(std::type_identity<Fmt>) { return f16_combine_instance<Fmt, F>(); });
  return ResultFormats::find(kLaunchers, result_format);
}

}  // namespace ferry::cuda
