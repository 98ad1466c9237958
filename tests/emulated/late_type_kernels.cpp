#include <string_view>

#include "emulated/late_kernels.h"
#include "emulated/late_puts.h"
#include "ferry/detail/cuda/launch/f16_launch.cuh"
#include "ferry/detail/cuda/team/scaled_messages.cuh"
#include "ferry/detail/formats/format_list.h"

namespace ferry::test {

const cuda::CombineLauncher* find_late_f16_combine(const char* name) {
  const cuda::CombineLauncher* found = nullptr;
  FormatList<Bf16, F32, Fp8Block128, Nvfp4>::for_each([&]<class Format>(std::type_identity<Format>) {
    static const cuda::CombineLauncher kLauncher = cuda::f16_combine_launcher<LateFabric, Format>();
    if (std::string_view(name) == Format::name()) found = &kLauncher;
  });
  return found;
}

const cuda::DispatchLauncher& late_scaling() {
  static const cuda::DispatchLauncher kLauncher = cuda::dispatch_launcher<cuda::ScalingEncoder<Nvfp4>, LateFabric>();
  return kLauncher;
}

const cuda::DispatchLauncher& late_given_scaled_rows() {
  static const cuda::DispatchLauncher kLauncher = cuda::dispatch_launcher<cuda::GivenScaledRows, LateFabric>();
  return kLauncher;
}

}  // namespace ferry::test
