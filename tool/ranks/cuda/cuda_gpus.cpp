// GPUs of this machine, as the commands see them.
#include "tool/ranks/cuda/cuda_gpus.h"

#include <cuda_runtime_api.h>
#include <fmt/core.h>

#include "cuda/device/device_memory.h"
#include "ferry/cuda/cuda_world.h"
#include "ferry/detail/cuda/launch/launch.h"
#include "ferry/detail/cuda/state/cuda_check.h"
#include "tool/ranks/cuda/gpu_calls.h"

namespace ferry::app {

using cuda::cuda_check;

int CudaGpus::count() const {
  static const int devices = num_cuda_devices();
  return devices;
}

std::string CudaGpus::why_none() const {
  if (count() > 0) return {};
  int listed = 0, driver = 0, runtime = 0;
  const cudaError_t status = cudaGetDeviceCount(&listed);
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  cudaGetLastError();
  return why_no_gpu_is_found(driver, runtime, status == cudaSuccess ? "" : cudaGetErrorString(status));
}

std::vector<GpuInfo> CudaGpus::infos() const {
  std::vector<GpuInfo> infos;
  for (int device = 0; device < count(); ++device) {
    const cuda::DeviceScope scope(device);
    cudaDeviceProp properties{};
    cuda_check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
    std::size_t left = 0, total = 0;
    cuda_check(cudaMemGetInfo(&left, &total), "cudaMemGetInfo");
    GpuInfo info{properties.name,
                 properties.multiProcessorCount,
                 total,
                 left,
                 static_cast<std::uint64_t>(properties.l2CacheSize),
                 {}};
    for (int peer = 0; peer < count(); ++peer) {
      int can = 0;
      if (peer != device) cuda_check(cudaDeviceCanAccessPeer(&can, device, peer), "cudaDeviceCanAccessPeer");
      if (can != 0) info.reaches.push_back(peer);
    }
    infos.push_back(std::move(info));
  }
  return infos;
}

std::string CudaGpus::versions() const {
  int driver = 0, runtime = 0;
  cuda_check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  cuda_check(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
  return fmt::format("driver {}.{}, runtime {}.{}", driver / 1000, driver % 1000 / 10, runtime / 1000,
                     runtime % 1000 / 10);
}

std::vector<std::unique_ptr<World>> CudaGpus::make_worlds(const std::vector<int>& devices, bool staged) const {
  return staged ? make_staged_cuda_worlds(devices) : make_cuda_worlds(devices);
}

std::unique_ptr<RankCalls> CudaGpus::make_calls(int device, const Shape& shape, const RowLayout& layout,
                                                RowOrder order) const {
  return make_gpu_calls(device, shape, layout, order);
}

}  // namespace ferry::app
