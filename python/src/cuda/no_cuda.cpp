// A build without GPUs says so.
#include "python/src/base/call_thread.h"
#include "python/src/cuda/cuda_parts.h"

namespace ferry::python {
namespace {

[[noreturn]] void refuse() {
  throw Error(
      ErrorKind::unsupported,
      "this build of Ferry has no GPU ranks: when it was made, CMake found no nvcc 13, or was told to leave them out "
      "(FERRY_CUDA=OFF, or AUTO without a GPU). `pip install . -Ccmake.define.FERRY_CUDA=ON`, where nvcc 13 is, "
      "makes one that has them");
}

}  // namespace

CudaBuild cuda_build() { return {"", ""}; }
int cuda_devices() { return 0; }
void stay_on(Device) {}
std::vector<std::unique_ptr<PyWorld>> cuda_thread_worlds(const std::vector<int>&, bool) { refuse(); }
int gpu_of_process(const ProcessPlace&, int) { refuse(); }
std::unique_ptr<ProcessWorld> gpu_process_world(const ProcessPlace&, int, bool, std::chrono::milliseconds) { refuse(); }
void swiglu_on_gpu(const AnyFormat&, const SwigluInput&, const SwigluOutput&, const SwigluOptions&, std::uintptr_t) {
  refuse();
}
void load_decoder(const AnyFormat&, int) { refuse(); }
void decode_on_gpu(const Exchange&, const DispatchOutput&, const Tensor&, const RowPlace&, const ConstTensor&,
                   std::uintptr_t) {
  refuse();
}
std::size_t state_bytes(const Shape&, const ExchangeOptions&, int) { refuse(); }
void* nothing_on_gpu(int) { return nullptr; }
void copy_to_host(const ConstTensor&, void*, std::uintptr_t) { refuse(); }
void clear_on_gpu(const Tensor&, std::uintptr_t) { refuse(); }

}  // namespace ferry::python
