#include "ferry/detail/cuda/state/cuda_check.h"

#include <string>

#include "ferry/error.h"

namespace ferry::cuda {

void cuda_check(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // clears the error, so that the next check does not find it again
  throw Error(ErrorKind::system,
              std::string(call) + ": " + cudaGetErrorName(status) + ": " + cudaGetErrorString(status));
}

}  // namespace ferry::cuda
