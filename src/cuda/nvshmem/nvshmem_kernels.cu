// Kernels that only NVSHMEM needs.
#include <nvshmem.h>

#include "cuda/nvshmem/nvshmem_job.h"

namespace ferry::cuda {
namespace {

__global__ void complete_puts_kernel() { nvshmem_quiet(); }

}  // namespace

void complete_all_puts() {
  complete_puts_kernel<<<1, 1>>>();
  cudaDeviceSynchronize();
  cudaGetLastError();  // a device that is broken says so in the next call of the exchange
}

}  // namespace ferry::cuda
