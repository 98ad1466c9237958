// load_cuda_swiglu and load_cuda_decode_rows: after them no call loads a kernel, which could wait for a kernel of an
// exchange that waits for a peer.
#include <cuda.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "device_case.h"
#include "ferry/cuda/decode_rows.h"
#include "ferry/detail/cuda/activation/decode_rows_launch.h"
#include "ferry/detail/cuda/activation/swiglu_launch.h"

namespace ferry::test {
namespace {

// Read when CUDA starts.
[[maybe_unused]] const int kLazy = setenv("CUDA_MODULE_LOADING", "LAZY", 1);

bool is_loaded(const void* kernel) {
  using IsLoaded = CUresult (*)(CUfunctionLoadingState*, CUfunction);
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  cuda_ok(cudaGetDriverEntryPointByVersion("cuFuncIsLoaded", &found, 12040, cudaEnableDefault, &result));
  EXPECT_EQ(result, cudaDriverEntryPointSuccess);
  cudaFunction_t function = nullptr;
  cuda_ok(cudaGetFuncBySymbol(&function, kernel));
  CUfunctionLoadingState state = CU_FUNCTION_LOADING_STATE_UNLOADED;
  EXPECT_EQ(reinterpret_cast<IsLoaded>(found)(&state, function), CUDA_SUCCESS);
  return state == CU_FUNCTION_LOADING_STATE_LOADED;
}

TEST(LoadCudaSwiglu, LoadsTheKernelsOfEveryKindOfRows) {
  FERRY_SKIP_WITHOUT_GPU();
  for (const AnyFormat& format : all_formats()) {
    load_cuda_swiglu(format);
    const cuda::SwigluLauncher* const launcher = cuda::find_swiglu_launcher(format.name());
    ASSERT_NE(launcher, nullptr);
    for (const DType rows : {DType::bf16, DType::f16, DType::f32})
      for (const bool interleaved : {false, true})
        EXPECT_TRUE(is_loaded(launcher->kernel(rows, interleaved))) << format.name() << " " << to_string(rows);
  }
}

TEST(LoadCudaDecodeRows, LoadsTheKernel) {
  FERRY_SKIP_WITHOUT_GPU();
  for (const AnyFormat& format : all_formats()) {
    load_cuda_decode_rows(format);
    const cuda::DecodeRowsLauncher* const launcher = cuda::find_decode_rows_launcher(format.name());
    ASSERT_NE(launcher, nullptr);
    EXPECT_TRUE(is_loaded(reinterpret_cast<const void*>(launcher->kernel))) << format.name();
  }
}

TEST(LoadCudaSwiglu, RefusesFormatsWithoutKernels) {
  const auto refused = [](const AnyFormat& format, ErrorKind kind) {
    try {
      load_cuda_swiglu(format);
      ADD_FAILURE() << "taken: " << format.name();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind) << error.what();
    }
  };
  refused(own_formats().front().format, ErrorKind::unsupported);
  refused(format_named("bytes_48_3x1"), ErrorKind::invalid_argument);
}

}  // namespace
}  // namespace ferry::test
