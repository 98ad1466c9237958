#include "cuda/world/driver.h"

#include <cuda_runtime_api.h>
#include <fmt/core.h>

namespace ferry::cuda {
namespace {

constexpr unsigned kVersion = 12000;  // as which the calls are wanted

template <class Function>
void find(const char* name, Function& function) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t status = cudaGetDriverEntryPointByVersion(name, &found, kVersion, cudaEnableDefault, &result);
  if (status != cudaSuccess || result != cudaDriverEntryPointSuccess || found == nullptr) {
    cudaGetLastError();
    throw Error(ErrorKind::unsupported, fmt::format("this machine's CUDA driver has no {}; it must be of CUDA 12 or "
                                                    "newer",
                                                    name));
  }
  function = reinterpret_cast<Function>(found);
}

Driver find_all() {
  Driver driver{};
  find("cuGetErrorString", driver.get_error_string);
  find("cuDeviceGetAttribute", driver.device_get_attribute);
  find("cuMemGetAllocationGranularity", driver.granularity);
  find("cuMemCreate", driver.create);
  find("cuMemRelease", driver.release);
  find("cuMemAddressReserve", driver.address_reserve);
  find("cuMemAddressFree", driver.address_free);
  find("cuMemMap", driver.map);
  find("cuMemUnmap", driver.unmap);
  find("cuMemSetAccess", driver.set_access);
  find("cuMemExportToShareableHandle", driver.export_handle);
  find("cuMemImportFromShareableHandle", driver.import_handle);
  return driver;
}

}  // namespace

const Driver& driver() {
  static const Driver found = find_all();
  return found;
}

void driver_check(CUresult status, const char* call) {
  if (status == CUDA_SUCCESS) return;
  const char* words = nullptr;
  driver().get_error_string(status, &words);
  throw DriverError(
      status, fmt::format("{}: {} ({})", call, words == nullptr ? "unknown error" : words, static_cast<int>(status)));
}

}  // namespace ferry::cuda
