// Kernels that only NVSHMEM needs.
#include <nvshmem.h>
#include <nvshmemx.h>

#include "ferry/detail/cuda/launch/launch.h"
#include "ferry/detail/cuda/state/cuda_check.h"
#include "nvshmem/nvshmem_job.h"
#include "nvshmem/plain_puts.h"

namespace ferry::cuda {
namespace {

__global__ void complete_puts_kernel() { nvshmem_quiet(); }

__global__ void plain_puts_kernel(PlainPuts puts) {
  const int warps = static_cast<int>(blockDim.x / 32 * gridDim.x);
  const int warp = static_cast<int>(threadIdx.x / 32 * gridDim.x + blockIdx.x);  // those of different blocks first
  for (int i = warp; i < puts.count; i += warps) {
    const std::size_t slot = static_cast<std::size_t>(i % puts.slots);
    const int peer = (puts.rank + 1 + i % (puts.size - 1)) % puts.size;
    std::byte* to =
        puts.to + (static_cast<std::size_t>(puts.rank) * static_cast<std::size_t>(puts.slots) + slot) * puts.message;
    nvshmemx_putmem_nbi_warp(to, puts.from + slot * puts.message, puts.message, peer);
  }
  if (threadIdx.x % 32 == 0) nvshmem_quiet();
}

}  // namespace

void complete_all_puts() {
  complete_puts_kernel<<<1, 1>>>();
  cudaDeviceSynchronize();
  cudaGetLastError();  // a device that is broken says so in the next call of the exchange
}

void launch_plain_puts(const PlainPuts& puts, int blocks, int warps, cudaStream_t stream) {
  plain_puts_kernel<<<static_cast<unsigned>(blocks), static_cast<unsigned>(32 * warps), 0, stream>>>(puts);
  cuda_check(cudaGetLastError(), "launch of the plain puts");
}

}  // namespace ferry::cuda
