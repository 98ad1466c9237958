// MappedMemory: an address range of this process, and memory of one GPU behind it that can be given back and taken
// again. Other devices of the process reach it, or other processes of the host map it, too. The driver counts the
// mappings across processes, so memory outlives the process that made it while another one maps it (I16).
#pragma once

#include <cuda.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "net/socket/socket.h"

namespace ferry::cuda {

// Whether the device has virtual memory management.
bool has_virtual_memory(int device);

class MappedMemory {
 public:
  // Reserves addresses for at least `bytes` of the current device; there is no memory behind them yet. Throws
  // Error(system).
  static std::shared_ptr<MappedMemory> reserve(std::size_t bytes);
  ~MappedMemory();
  MappedMemory(const MappedMemory&) = delete;
  MappedMemory& operator=(const MappedMemory&) = delete;

  std::byte* data() const { return reinterpret_cast<std::byte*>(address_); }

  // Zeroed memory of the device, if there is none yet, which all of `devices` reach. Throws Error(system).
  void allocate(const std::vector<int>& devices);
  // The same for processes: the device alone reaches it, and descriptors may be made. Throws Error(unsupported) where
  // the device has no memory that can be shared so.
  void allocate_shareable();
  // A descriptor for other processes. It keeps the memory alive, too.
  net::Descriptor make_descriptor() const;
  // Maps the memory of another process, which has the same size, in place of what was there.
  void open(const net::Descriptor& descriptor);

  // The addresses stay. No kernel may use them before there is memory again.
  void give_back();

 private:
  MappedMemory() = default;
  void allocate(CUmemAllocationHandleType type, const std::vector<int>& devices);
  void map(const std::vector<int>& devices);
  void drop() noexcept;

  int device_ = 0;
  std::size_t bytes_ = 0;
  CUmemGenericAllocationHandle handle_ = 0;
  bool has_handle_ = false;
  bool is_mapped_ = false;
  CUdeviceptr address_ = 0;
};

}  // namespace ferry::cuda
