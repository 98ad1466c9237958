#include "cuda/world/mapped_memory.h"

#include <fmt/core.h>

#include <cstdint>

#include "cuda/world/driver.h"
#include "ferry/detail/cuda/state/cuda_check.h"
#include "ferry/error.h"

namespace ferry::cuda {
namespace {

CUmemAllocationProp properties_on(int device, CUmemAllocationHandleType type) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = type;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  return properties;
}

int current_device() {
  int device = 0;
  cuda_check(cudaGetDevice(&device), "cudaGetDevice");
  cuda_check(cudaSetDevice(device), "cudaSetDevice");  // creates its context if there is none yet
  return device;
}

bool has(CUdevice_attribute attribute, int device) {
  int has = 0;
  driver_check(driver().device_get_attribute(&has, attribute, device), "cuDeviceGetAttribute");
  return has != 0;
}

void require_can_share(int device) {
  if (!has_virtual_memory(device) || !has(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, device))
    throw Error(ErrorKind::unsupported,
                fmt::format("device {} has no memory that another process can open by a file descriptor; use one "
                            "process for all GPUs (make_cuda_worlds)",
                            device));
}

// The same for all types of handles.
std::size_t round_up(std::size_t bytes, int device) {
  const CUmemAllocationProp properties = properties_on(device, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  std::size_t granularity = 0;
  driver_check(driver().granularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
               "cuMemGetAllocationGranularity");
  return (bytes + granularity - 1) / granularity * granularity;
}

}  // namespace

bool has_virtual_memory(int device) { return has(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device); }

std::shared_ptr<MappedMemory> MappedMemory::reserve(std::size_t bytes) {
  std::shared_ptr<MappedMemory> memory(new MappedMemory);
  memory->device_ = current_device();
  memory->bytes_ = round_up(bytes, memory->device_);
  driver_check(driver().address_reserve(&memory->address_, memory->bytes_, 0, 0, 0), "cuMemAddressReserve");
  return memory;
}

void MappedMemory::allocate(const std::vector<int>& devices) { allocate(CU_MEM_HANDLE_TYPE_NONE, devices); }

void MappedMemory::allocate_shareable() {
  require_can_share(device_);
  allocate(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, {device_});
}

void MappedMemory::allocate(CUmemAllocationHandleType type, const std::vector<int>& devices) {
  if (is_mapped_) return;
  give_back();
  const CUmemAllocationProp properties = properties_on(device_, type);
  const CUresult status = driver().create(&handle_, bytes_, &properties, 0);
  if (status == CUDA_ERROR_OUT_OF_MEMORY)
    throw Error(ErrorKind::system,
                fmt::format("no memory for {} bytes on device {}; make max_tokens smaller, or leave more of the GPU's "
                            "memory free",
                            bytes_, device_));
  driver_check(status, "cuMemCreate");
  has_handle_ = true;
  try {
    map(devices);
    // As in DeviceMemory: a kernel of another stream may wait for this rank.
    cuda_check(cudaMemsetAsync(data(), 0, bytes_, cudaStreamPerThread), "cudaMemsetAsync");
    cuda_check(cudaStreamSynchronize(cudaStreamPerThread), "cudaStreamSynchronize");
  } catch (...) {
    drop();
    throw;
  }
}

void MappedMemory::open(const net::Descriptor& descriptor) {
  give_back();
  // The driver takes the descriptor as a pointer's value.
  auto* number = reinterpret_cast<void*>(static_cast<std::uintptr_t>(descriptor.get()));
  driver_check(driver().import_handle(&handle_, number, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
               "cuMemImportFromShareableHandle");
  has_handle_ = true;
  map({device_});
}

void MappedMemory::map(const std::vector<int>& devices) {
  driver_check(driver().map(address_, bytes_, 0, handle_, 0), "cuMemMap");
  is_mapped_ = true;
  std::vector<CUmemAccessDesc> access(devices.size());
  for (std::size_t i = 0; i < devices.size(); ++i) {
    access[i].location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access[i].location.id = devices[i];
    access[i].flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  }
  driver_check(driver().set_access(address_, bytes_, access.data(), access.size()), "cuMemSetAccess");
}

net::Descriptor MappedMemory::make_descriptor() const {
  int fd = -1;
  driver_check(driver().export_handle(&fd, handle_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
               "cuMemExportToShareableHandle");
  return net::Descriptor(fd);
}

void MappedMemory::give_back() {
  if (is_mapped_) driver_check(driver().unmap(address_, bytes_), "cuMemUnmap");
  is_mapped_ = false;
  if (has_handle_) driver_check(driver().release(handle_), "cuMemRelease");
  has_handle_ = false;
}

void MappedMemory::drop() noexcept {
  if (is_mapped_) driver().unmap(address_, bytes_);
  is_mapped_ = false;
  if (has_handle_) driver().release(handle_);
  has_handle_ = false;
}

MappedMemory::~MappedMemory() {
  drop();
  if (address_ != 0) driver().address_free(address_, bytes_);
}

}  // namespace ferry::cuda
