// What calls on rows have in common as they launch their kernels.
#include "ferry/detail/cuda/activation/rows_grid.h"

#include <fmt/core.h>

#include "ferry/detail/cuda/state/cuda_check.h"
#include "ferry/error.h"

namespace ferry::cuda {
namespace {

int attribute(cudaDeviceAttr which, int device) {
  int value = 0;
  cuda_check(cudaDeviceGetAttribute(&value, which, device), "cudaDeviceGetAttribute");
  return value;
}

}  // namespace

RowsGrid rows_grid(int device, int max_blocks, cudaStream_t stream) {
  return {attribute(cudaDevAttrMultiProcessorCount, device), max_blocks,
          attribute(cudaDevAttrComputeCapabilityMajor, device) >= 9, stream};
}

void require_image(const char* call, cudaError_t status, const char* cuda_call) {
  if (status == cudaErrorNoKernelImageForDevice || status == cudaErrorInvalidDeviceFunction) {
    cudaGetLastError();
    throw Error(ErrorKind::unsupported,
                fmt::format("{}: this build has no kernels for the GPU that holds the rows; build Ferry with its "
                            "architecture in CMAKE_CUDA_ARCHITECTURES",
                            call));
  }
  cuda_check(status, cuda_call);
}

RowsLaunch::RowsLaunch(const RowsGrid& grid, int blocks, int threads, std::size_t shared_bytes) {
  dependent.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  dependent.val.programmaticStreamSerializationAllowed = 1;
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = shared_bytes;
  config.stream = grid.stream;
  config.attrs = &dependent;
  config.numAttrs = grid.dependent ? 1 : 0;
}

}  // namespace ferry::cuda
