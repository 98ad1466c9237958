#include "emulated/late_kernels.h"

#include <string_view>

#include "emulated/late_puts.h"
#include "ferry/detail/cuda/launch/launch.cuh"
#include "ferry/detail/formats/format_list.h"

namespace ferry::test {

const cuda::DispatchLauncher* find_late_dispatch(const char* name) {
  const cuda::DispatchLauncher* found = nullptr;
  FormatList<Bf16, Fp8Block128, Fp8Block128Ue8m0, Mxfp8, Nvfp4>::for_each(
      [&]<class Format>(std::type_identity<Format>) {
        static const cuda::DispatchLauncher kLauncher = cuda::dispatch_launcher<Encoder<Format>, LateFabric>();
        if (std::string_view(name) == Format::name()) found = &kLauncher;
      });
  return found;
}

const cuda::CombineLauncher* find_late_combine(const char* name) {
  const cuda::CombineLauncher* found = nullptr;
  FormatList<Bf16, F32, Fp8Block128, Nvfp4>::for_each([&]<class Format>(std::type_identity<Format>) {
    static const cuda::CombineLauncher kLauncher = cuda::combine_launcher<LateFabric, Format>();
    if (std::string_view(name) == Format::name()) found = &kLauncher;
  });
  return found;
}

const cuda::DispatchLauncher& late_given_rows() {
  static const cuda::DispatchLauncher kLauncher = cuda::dispatch_launcher<GivenRows, LateFabric>();
  return kLauncher;
}

}  // namespace ferry::test
