#include "cuda/world/shared_memory.h"

#include <fmt/core.h>

#include <cstdint>

#include "cuda/world/driver.h"
#include "ferry/detail/cuda/state/cuda_check.h"
#include "ferry/error.h"

namespace ferry::cuda {
namespace {

CUmemAllocationProp properties_on(int device) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
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

void require_can_share(int device) {
  for (const CUdevice_attribute attribute : {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                                             CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED}) {
    int has = 0;
    driver_check(driver().device_get_attribute(&has, attribute, device), "cuDeviceGetAttribute");
    if (has == 0)
      throw Error(ErrorKind::unsupported,
                  fmt::format("device {} has no memory that another process can open by a file descriptor; use one "
                              "process for all GPUs (make_cuda_worlds)",
                              device));
  }
}

std::size_t round_up(std::size_t bytes, int device) {
  const CUmemAllocationProp properties = properties_on(device);
  std::size_t granularity = 0;
  driver_check(driver().granularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
               "cuMemGetAllocationGranularity");
  return (bytes + granularity - 1) / granularity * granularity;
}

}  // namespace

std::shared_ptr<SharedMemory> SharedMemory::allocate(std::size_t bytes) {
  std::shared_ptr<SharedMemory> memory(new SharedMemory);
  memory->device_ = current_device();
  require_can_share(memory->device_);
  memory->bytes_ = round_up(bytes, memory->device_);
  const CUmemAllocationProp properties = properties_on(memory->device_);
  const CUresult status = driver().create(&memory->handle_, memory->bytes_, &properties, 0);
  if (status == CUDA_ERROR_OUT_OF_MEMORY)
    throw Error(ErrorKind::system,
                fmt::format("no memory for {} bytes on device {}; make max_tokens smaller", bytes, memory->device_));
  driver_check(status, "cuMemCreate");
  memory->has_handle_ = true;
  memory->map();
  cuda_check(cudaMemset(memory->data(), 0, memory->bytes_), "cudaMemset");
  cuda_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  return memory;
}

std::shared_ptr<SharedMemory> SharedMemory::open(const net::Descriptor& descriptor, std::size_t bytes) {
  std::shared_ptr<SharedMemory> memory(new SharedMemory);
  memory->device_ = current_device();
  memory->bytes_ = round_up(bytes, memory->device_);
  // The driver takes the descriptor as a pointer's value.
  auto* number = reinterpret_cast<void*>(static_cast<std::uintptr_t>(descriptor.get()));
  driver_check(driver().import_handle(&memory->handle_, number, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
               "cuMemImportFromShareableHandle");
  memory->has_handle_ = true;
  memory->map();
  return memory;
}

void SharedMemory::map() {
  driver_check(driver().address_reserve(&address_, bytes_, 0, 0, 0), "cuMemAddressReserve");
  driver_check(driver().map(address_, bytes_, 0, handle_, 0), "cuMemMap");
  is_mapped_ = true;
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = device_;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  driver_check(driver().set_access(address_, bytes_, &access, 1), "cuMemSetAccess");
}

net::Descriptor SharedMemory::make_descriptor() const {
  int fd = -1;
  driver_check(driver().export_handle(&fd, handle_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
               "cuMemExportToShareableHandle");
  return net::Descriptor(fd);
}

SharedMemory::~SharedMemory() {
  if (is_mapped_) driver().unmap(address_, bytes_);
  if (address_ != 0) driver().address_free(address_, bytes_);
  if (has_handle_) driver().release(handle_);
}

}  // namespace ferry::cuda
