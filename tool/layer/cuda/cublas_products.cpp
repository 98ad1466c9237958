#include "tool/layer/cuda/cublas_products.h"

#include <fmt/core.h>

#include "ferry/error.h"

namespace ferry::app {
namespace {

// What a user can do about it.
const char* advice_for(cublasStatus_t status) {
  if (status == CUBLAS_STATUS_ALLOC_FAILED || status == CUBLAS_STATUS_NOT_INITIALIZED)
    return "; free memory of the GPU, or take more ranks";
  if (status == CUBLAS_STATUS_ARCH_MISMATCH || status == CUBLAS_STATUS_NOT_SUPPORTED)
    return "; bf16 products need a GPU of compute capability 8.0 or newer: take --experts-on cpu";
  return "; --experts-on cpu works without cuBLAS";
}

void cublas_check(cublasStatus_t status, const std::string& call) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw Error(ErrorKind::system, fmt::format("{}: {}{}", call, cublasGetStatusName(status), advice_for(status)));
}

}  // namespace

CublasProducts::CublasProducts(const cuda::MemoryStream& stream) : workspace_(stream, kWorkspaceBytes) {
  cublas_check(cublasCreate(&handle_), "cublasCreate");
  try {
    cublas_check(cublasSetStream(handle_, stream.get()), "cublasSetStream");  // takes the workspace away
    cublas_check(cublasSetWorkspace(handle_, workspace_.data(), kWorkspaceBytes), "cublasSetWorkspace");
    cublas_check(cublasSetPointerMode(handle_, CUBLAS_POINTER_MODE_HOST), "cublasSetPointerMode");
    cublas_check(cublasSetAtomicsMode(handle_, CUBLAS_ATOMICS_NOT_ALLOWED), "cublasSetAtomicsMode");
    const int exact_sums = CUBLAS_DEFAULT_MATH | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;
    cublas_check(cublasSetMathMode(handle_, static_cast<cublasMath_t>(exact_sums)), "cublasSetMathMode");
  } catch (...) {
    cublasDestroy(handle_);
    throw;
  }
}

CublasProducts::~CublasProducts() { cublasDestroy(handle_); }

// cuBLAS counts columns first: what is [rows, columns] here is its matrix of `columns` by `rows`.
void CublasProducts::run(const Product& product, const ProductOperands& operands, const std::string& what) const {
  const float one = 1.0f, zero = 0.0f;
  const std::int64_t partial = std::int64_t{product.rows} * product.columns;
  const cublasStatus_t status = cublasGemmStridedBatchedEx(
      handle_, CUBLAS_OP_T, CUBLAS_OP_N, product.columns, product.rows, product.depth, &one,
      operands.matrix + product.first, CUDA_R_16BF, static_cast<int>(operands.matrix_stride), product.depth,
      operands.in + product.first, CUDA_R_16BF, static_cast<int>(operands.in_stride), product.depth, &zero,
      operands.partials + product.partial * partial, CUDA_R_32F, product.columns, partial, product.batch,
      CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
  if (status != CUBLAS_STATUS_SUCCESS)
    cublas_check(status, fmt::format("cublasGemmStridedBatchedEx of {}, {} x {} x {} in {} parts", what, product.rows,
                                     product.columns, product.depth, product.batch));
}

}  // namespace ferry::app
