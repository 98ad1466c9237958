// The matrix products of one rank's experts through cuBLAS. Only this folder includes it.
#pragma once

#include <cublas_v2.h>

#include <cstdint>
#include <string>

#include "cuda/device/device_memory.h"
#include "tool/layer/experts/expert_plan.h"

namespace ferry::app {

// The operands of a matrix product in device memory: in[rows, depth] and matrix[columns, depth] with their strides, and
// where the partials go, one [rows, columns] after the other.
struct ProductOperands {
  const Bf16* in = nullptr;
  std::int64_t in_stride = 0;
  const Bf16* matrix = nullptr;
  std::int64_t matrix_stride = 0;
  float* partials = nullptr;
};

// bf16 in, float32 sums and results. The same bytes in every run on the same kind of GPU with the same cuBLAS: the
// stream is the only one of its handle, the workspace its own, and sums are never shortened.
class CublasProducts {
 public:
  // On the current device, for the work of `stream`. Throws Error(system) with cuBLAS' status.
  explicit CublasProducts(const cuda::MemoryStream& stream);
  ~CublasProducts();  // waits for all kernels of the device
  CublasProducts(const CublasProducts&) = delete;
  CublasProducts& operator=(const CublasProducts&) = delete;

  // Enqueues the product. `what`: of which matrix, for errors.
  void run(const Product& product, const ProductOperands& operands, const std::string& what) const;

  static constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;  // what cuBLAS advises for Hopper

 private:
  cuda::StreamMemory workspace_;
  cublasHandle_t handle_ = nullptr;
};

}  // namespace ferry::app
