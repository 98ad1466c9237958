// The table of dispatch launchers over NvshmemFabric, and its combine kernel.
#include "nvshmem/nvshmem_launch.h"

#include <array>
#include <cstring>

#include "ferry/detail/cuda/fabric/hooked_fabric.cuh"
#include "ferry/detail/cuda/kernels/launch.cuh"
#include "ferry/detail/nvshmem/nvshmem_fabric.cuh"

namespace ferry::cuda {
namespace {

const DispatchLauncher* find_dispatch(const char* format) {
  static const std::array<DispatchLauncher, 8> kLaunchers = {
      nvshmem_bf16_launcher(),  nvshmem_fp8_block128_launcher(), nvshmem_fp8_block128_ue8m0_launcher(),
      nvshmem_mxfp8_launcher(), nvshmem_mxfp6_e2m3_launcher(),   nvshmem_mxfp6_e3m2_launcher(),
      nvshmem_mxfp4_launcher(), nvshmem_nvfp4_launcher()};
  for (const DispatchLauncher& launcher : kLaunchers)
    if (std::strcmp(launcher.format, format) == 0) return &launcher;
  return nullptr;
}

}  // namespace

Launchers nvshmem_launchers() {
  return {&find_dispatch, combine_launcher<Hooked<NvshmemFabric, NoHooks>>(), NvshmemFabric::kHasRemoteRanks};
}

}  // namespace ferry::cuda
