// Virtual memory management of emulated GPUs: memory is a memfd, and an address range is one of this process. Who reads
// addresses without memory behind them gets SIGSEGV.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <string_view>

#include "support/emulated_gpu/memory.h"

namespace ferry::emulated {
namespace {

constexpr std::size_t kGranularity = 2 << 20;
constexpr int kGarbage = 0xcd;

struct Created {
  std::size_t bytes;
  int device;
  int holders = 1;  // the handle, and mappings
};

struct State {
  std::mutex guard;
  std::map<CUmemGenericAllocationHandle, Created> created;       // by the descriptor of the memfd
  std::map<CUdeviceptr, CUmemGenericAllocationHandle> mappings;  // by address
};
State& state() {
  static State state;
  return state;
}

std::atomic<int> unmaps_before_end{0};

void* pointer(CUdeviceptr address) { return reinterpret_cast<void*>(static_cast<std::uintptr_t>(address)); }

// The lock is held.
void let_go(CUmemGenericAllocationHandle memory) {
  const auto found = state().created.find(memory);
  if (--found->second.holders > 0) return;
  close(static_cast<int>(memory));
  state().created.erase(found);
}

}  // namespace

int unmaps_before_kernels_ended() { return unmaps_before_end; }

std::size_t created_bytes() {
  const std::lock_guard lock(state().guard);
  std::size_t bytes = 0;
  for (const auto& [memory, each] : state().created) bytes += each.bytes;
  return bytes;
}

}  // namespace ferry::emulated

using namespace ferry::emulated;

CUresult cuGetErrorString(CUresult, const char** words) {
  *words = "an emulated GPU refused the call";
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute, CUdevice) {
  *value = 1;
  return CUDA_SUCCESS;
}
CUresult cuMemGetAllocationGranularity(std::size_t* bytes, const CUmemAllocationProp*,
                                       CUmemAllocationGranularity_flags) {
  *bytes = kGranularity;
  return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* memory, std::size_t bytes, const CUmemAllocationProp* properties,
                     unsigned long long) {
  if (bytes == 0 || bytes % kGranularity != 0) return CUDA_ERROR_INVALID_VALUE;
  const int made = memfd_create("emulated", MFD_CLOEXEC);
  if (made < 0 || ftruncate(made, static_cast<off_t>(bytes)) != 0) return CUDA_ERROR_OUT_OF_MEMORY;
  void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, made, 0);
  if (mapped == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  std::memset(mapped, kGarbage, bytes);
  munmap(mapped, bytes);
  *memory = static_cast<CUmemGenericAllocationHandle>(made);
  const std::lock_guard lock(state().guard);
  state().created[*memory] = {bytes, properties->location.id};
  return CUDA_SUCCESS;
}
CUresult cuMemRelease(CUmemGenericAllocationHandle memory) {
  const std::lock_guard lock(state().guard);
  if (!state().created.contains(memory)) return CUDA_ERROR_INVALID_VALUE;
  let_go(memory);
  return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr* address, std::size_t bytes, std::size_t, CUdeviceptr, unsigned long long) {
  void* reserved = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  *address = reinterpret_cast<std::uintptr_t>(reserved);
  return CUDA_SUCCESS;
}
CUresult cuMemAddressFree(CUdeviceptr address, std::size_t bytes) {
  return munmap(pointer(address), bytes) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// Nobody reaches it before cuMemSetAccess.
CUresult cuMemMap(CUdeviceptr address, std::size_t bytes, std::size_t, CUmemGenericAllocationHandle memory,
                  unsigned long long) {
  const std::lock_guard lock(state().guard);
  const auto found = state().created.find(memory);
  if (found == state().created.end() || found->second.bytes != bytes || state().mappings.contains(address))
    return CUDA_ERROR_INVALID_VALUE;
  if (mmap(pointer(address), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, static_cast<int>(memory), 0) == MAP_FAILED)
    return CUDA_ERROR_OUT_OF_MEMORY;
  ++found->second.holders;
  state().mappings[address] = memory;
  note_memory(pointer(address), bytes, found->second.device);
  return CUDA_SUCCESS;
}
CUresult cuMemSetAccess(CUdeviceptr address, std::size_t bytes, const CUmemAccessDesc*, std::size_t count) {
  if (count == 0) return CUDA_ERROR_INVALID_VALUE;
  return mprotect(pointer(address), bytes, PROT_READ | PROT_WRITE) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
// CUDA does not promise that it waits for kernels.
CUresult cuMemUnmap(CUdeviceptr address, std::size_t bytes) {
  int device = 0;
  cudaGetDevice(&device);
  if (!is_device_idle(device)) ++unmaps_before_end;
  synchronize_device(device);
  const std::lock_guard lock(state().guard);
  const auto found = state().mappings.find(address);
  if (found == state().mappings.end()) return CUDA_ERROR_INVALID_VALUE;
  forget_memory(pointer(address));
  constexpr int kNoMemory = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
  if (mmap(pointer(address), bytes, PROT_NONE, kNoMemory, -1, 0) == MAP_FAILED) return CUDA_ERROR_INVALID_VALUE;
  let_go(found->second);
  state().mappings.erase(found);
  return CUDA_SUCCESS;
}

// No processes share memory of emulated GPUs.
CUresult cuMemExportToShareableHandle(void*, CUmemGenericAllocationHandle, CUmemAllocationHandleType,
                                      unsigned long long) {
  return CUDA_ERROR_INVALID_VALUE;
}
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle*, void*, CUmemAllocationHandleType) {
  return CUDA_ERROR_INVALID_VALUE;
}

namespace {

template <class Function>
void* address_of(Function* function) {
  return reinterpret_cast<void*>(function);
}

}  // namespace

cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  static const std::map<std::string_view, void*> kAll = {
      {"cuGetErrorString", address_of(cuGetErrorString)},
      {"cuDeviceGetAttribute", address_of(cuDeviceGetAttribute)},
      {"cuMemGetAllocationGranularity", address_of(cuMemGetAllocationGranularity)},
      {"cuMemCreate", address_of(cuMemCreate)},
      {"cuMemRelease", address_of(cuMemRelease)},
      {"cuMemAddressReserve", address_of(cuMemAddressReserve)},
      {"cuMemAddressFree", address_of(cuMemAddressFree)},
      {"cuMemMap", address_of(cuMemMap)},
      {"cuMemUnmap", address_of(cuMemUnmap)},
      {"cuMemSetAccess", address_of(cuMemSetAccess)},
      {"cuMemExportToShareableHandle", address_of(cuMemExportToShareableHandle)},
      {"cuMemImportFromShareableHandle", address_of(cuMemImportFromShareableHandle)},
  };
  const auto found = kAll.find(name);
  *result = found == kAll.end() ? cudaDriverEntryPointSymbolNotFound : cudaDriverEntryPointSuccess;
  *function = found == kAll.end() ? nullptr : found->second;
  return cudaSuccess;
}
