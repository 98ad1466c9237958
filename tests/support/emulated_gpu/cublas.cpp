// A product is refused unless the handle was told all that makes its result the same in every run.
#include <cublas_v2.h>

#include <bit>
#include <cstdint>
#include <map>
#include <mutex>

#include "support/matrix_unit.h"

using namespace ferry;

struct EmulatedCublas {
  int device = 0;
  cudaStream_t stream = nullptr;
  bool has_workspace = false;
  bool has_exact_sums = false;
  bool has_no_atomics = false;
};

namespace {

std::mutex guard;
std::map<int, cublasStatus_t> told;  // by device

float float_of_bf16(const std::uint16_t* value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(*value) << 16);
}

// out[j, i] = sum over l of a[i, l] * b[j, l]: what the tool asks of one part, rows first.
void multiply(int m, int n, int k, const std::uint16_t* a, int lda, const std::uint16_t* b, int ldb, float* c,
              int ldc) {
  test::MatrixUnit unit(static_cast<unsigned>(m + 1000 * n + 7 * k));
  for (int j = 0; j < n; ++j)
    for (int i = 0; i < m; ++i) {
      const auto of_a = [&](int l) { return float_of_bf16(a + std::int64_t{i} * lda + l); };
      const auto of_b = [&](int l) { return float_of_bf16(b + std::int64_t{j} * ldb + l); };
      c[std::int64_t{j} * ldc + i] = unit.sum(k, of_a, of_b);
    }
}

}  // namespace

namespace ferry::emulated {
void set_cublas_status(int device, cublasStatus_t status) {
  const std::lock_guard lock(guard);
  told[device] = status;
}
}  // namespace ferry::emulated

const char* cublasGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_ALLOC_FAILED:
      return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    default:
      return "CUBLAS_STATUS_INVALID_VALUE";
  }
}

cublasStatus_t cublasCreate(cublasHandle_t* handle) {
  *handle = new EmulatedCublas;
  cudaGetDevice(&(*handle)->device);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy(cublasHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  handle->has_workspace = false;  // as cuBLAS does
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetWorkspace(cublasHandle_t handle, void* workspace, std::size_t) {
  handle->has_workspace = reinterpret_cast<std::uintptr_t>(workspace) % 256 == 0;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetPointerMode(cublasHandle_t, cublasPointerMode_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasSetAtomicsMode(cublasHandle_t handle, cublasAtomicsMode_t mode) {
  handle->has_no_atomics = mode == CUBLAS_ATOMICS_NOT_ALLOWED;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
  handle->has_exact_sums = (mode & CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION) != 0;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t a_op, cublasOperation_t b_op, int m,
                                          int n, int k, const void* alpha, const void* a, cudaDataType a_type, int lda,
                                          long long a_stride, const void* b, cudaDataType b_type, int ldb,
                                          long long b_stride, const void* beta, void* c, cudaDataType c_type, int ldc,
                                          long long c_stride, int batch, cublasComputeType_t compute,
                                          cublasGemmAlgo_t) {
  {
    const std::lock_guard lock(guard);
    if (told[handle->device] != CUBLAS_STATUS_SUCCESS) return told[handle->device];
  }
  const bool is_known = handle->has_workspace && handle->has_exact_sums && handle->has_no_atomics &&
                        a_op == CUBLAS_OP_T && b_op == CUBLAS_OP_N && a_type == CUDA_R_16BF && b_type == CUDA_R_16BF &&
                        c_type == CUDA_R_32F && compute == CUBLAS_COMPUTE_32F &&
                        *static_cast<const float*>(alpha) == 1 && *static_cast<const float*>(beta) == 0;
  if (!is_known || m < 1 || n < 1 || k < 1 || lda < k || ldb < k || ldc < m) return CUBLAS_STATUS_INVALID_VALUE;
  emulated::enqueue(*handle->stream, [=] {
    for (long long i = 0; i < batch; ++i)
      multiply(m, n, k, static_cast<const std::uint16_t*>(a) + i * a_stride, lda,
               static_cast<const std::uint16_t*>(b) + i * b_stride, ldb, static_cast<float*>(c) + i * c_stride, ldc);
  });
  return CUBLAS_STATUS_SUCCESS;
}
