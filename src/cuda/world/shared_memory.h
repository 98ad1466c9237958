// SharedMemory: memory of one GPU that other processes of the host map, too. The driver counts its mappings across
// processes, so it outlives the process that made it while another one maps it (I16).
#pragma once

#include <cuda.h>

#include <cstddef>
#include <memory>

#include "net/socket/socket.h"

namespace ferry::cuda {

class SharedMemory {
 public:
  // Zeroed memory of the current device, at least `bytes`. Throws Error(system), or Error(unsupported) where the device
  // has no memory that can be shared.
  static std::shared_ptr<SharedMemory> allocate(std::size_t bytes);
  // Maps the memory of `descriptor` for the current device. `bytes` is the size that it was allocated with.
  static std::shared_ptr<SharedMemory> open(const net::Descriptor& descriptor, std::size_t bytes);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  std::byte* data() const { return reinterpret_cast<std::byte*>(address_); }
  // A descriptor for other processes. It keeps the memory alive, too.
  net::Descriptor make_descriptor() const;

 private:
  SharedMemory() = default;
  void map();

  int device_ = 0;
  std::size_t bytes_ = 0;
  CUmemGenericAllocationHandle handle_ = 0;
  bool has_handle_ = false;
  bool is_mapped_ = false;
  CUdeviceptr address_ = 0;
};

}  // namespace ferry::cuda
