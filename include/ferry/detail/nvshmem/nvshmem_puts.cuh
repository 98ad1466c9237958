// NvshmemPuts: NVSHMEM's device calls as RemotePuts. Rank r is PE r. The memory of an exchange is a piece of the
// symmetric heap at the same offset on all ranks, so an address of this rank stands for the peer's. Only this header
// names the calls.
#pragma once

#include <nvshmem.h>
#include <nvshmemx.h>

#include <cstddef>
#include <cstdint>

#include "ferry/detail/cuda/fabric/remote_fabric.cuh"
#include "ferry/detail/cuda/state/device_state.h"

namespace ferry::cuda {

class NvshmemPuts {
 public:
  static constexpr const char* kName = "nvshmem";
  __device__ explicit NvshmemPuts(const PeerLinks& links) : links_(links) {}

  __device__ void put(int peer, std::size_t offset, const std::byte* source, std::size_t bytes) const {
    nvshmemx_putmem_nbi_warp(at(offset), source, bytes, peer);
  }
  __device__ void put_signal(int peer, std::size_t offset, const std::byte* source, std::size_t bytes, std::size_t word,
                             Epoch value) const {
    nvshmemx_putmem_signal_nbi_warp(at(offset), source, bytes, signal_at(word), value, NVSHMEM_SIGNAL_SET, peer);
  }
  __device__ void signal(int peer, std::size_t word, Epoch value) const {
    nvshmemx_signal_op(signal_at(word), value, NVSHMEM_SIGNAL_SET, peer);
  }
  __device__ void store32(int peer, std::size_t offset, std::uint32_t value) const {
    nvshmem_uint32_p(reinterpret_cast<std::uint32_t*>(at(offset)), value, peer);
  }
  __device__ void fence() const { nvshmem_fence(); }
  __device__ void quiet() const { nvshmem_quiet(); }
  // Returns at once, since the word has the value. On some networks this call makes earlier puts visible.
  __device__ void wait_signal(std::size_t word, Epoch value) const {
    nvshmem_signal_wait_until(signal_at(word), NVSHMEM_CMP_GE, value);
  }

 private:
  __device__ std::byte* at(std::size_t offset) const { return links_.own + offset; }
  __device__ std::uint64_t* signal_at(std::size_t word) const { return reinterpret_cast<std::uint64_t*>(at(word)); }

  const PeerLinks& links_;
};
static_assert(RemotePuts<NvshmemPuts>);

using NvshmemFabric = RemoteFabric<NvshmemPuts>;
static_assert(DeviceFabric<NvshmemFabric>);

}  // namespace ferry::cuda
