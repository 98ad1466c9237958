// Worlds of GPUs, and what Python needs of CUDA besides: copies and clears.
#include <cuda_runtime_api.h>
#include <ferry/cuda/activation.h>
#include <ferry/cuda/cuda_world.h>
#include <ferry/cuda/decode_rows.h>

#include <map>
#include <mutex>
#include <string>

#include "python/src/base/call_thread.h"
#include "python/src/cuda/cuda_parts.h"

namespace nb = nanobind;

namespace ferry::python {
namespace {

void require_success(cudaError_t status, const char* call) {
  if (status != cudaSuccess)
    throw Error(ErrorKind::system, std::string(call) + " failed: " + cudaGetErrorString(status));
}

// A GPU is this thread's current one until the end of the scope.
class CurrentGpu {
 public:
  explicit CurrentGpu(int device) {
    require_success(cudaGetDevice(&before_), "cudaGetDevice");
    require_success(cudaSetDevice(device), "cudaSetDevice");
  }
  ~CurrentGpu() { cudaSetDevice(before_); }
  CurrentGpu(const CurrentGpu&) = delete;
  CurrentGpu& operator=(const CurrentGpu&) = delete;

 private:
  int before_ = 0;
};

// NOLINTNEXTLINE(performance-no-int-to-ptr): Python has streams as numbers
cudaStream_t stream_of(std::uintptr_t number) { return reinterpret_cast<cudaStream_t>(number); }

template <class View>
std::size_t bytes_of(const View& tensor) {
  return static_cast<std::size_t>(tensor.elements()) * size_of(tensor.dtype);
}

}  // namespace

CudaBuild cuda_build() { return {FERRY_PYTHON_CUDA_VERSION, FERRY_PYTHON_CUDA_ARCHITECTURES}; }

int cuda_devices() { return num_cuda_devices(); }

void stay_on(Device device) {
  if (device.kind == Device::Kind::cuda) require_success(cudaSetDevice(device.index), "cudaSetDevice");
}

std::vector<std::unique_ptr<PyWorld>> cuda_thread_worlds(const std::vector<int>& devices, bool staged) {
  std::vector<std::unique_ptr<World>> made;
  {
    const nb::gil_scoped_release without_gil;
    made = staged ? make_staged_cuda_worlds(devices) : make_cuda_worlds(devices);
    for (const int device : devices) nothing_on_gpu(device);
  }
  std::vector<std::unique_ptr<PyWorld>> worlds;
  for (std::size_t rank = 0; rank < made.size(); ++rank)
    worlds.push_back(
        std::make_unique<PyWorld>(std::move(made[rank]), staged ? Device::cpu() : Device::cuda(devices[rank])));
  return worlds;
}

int gpu_of_process(const ProcessPlace& place, int device) {
  if (device >= 0) return device;
  if (num_cuda_devices() == 1) return 0;
  ProcessPlace known = place;
  if (known.address.empty())  // how they meet is not asked here
    known.all_gather = [](std::span<const std::byte>) { return std::vector<std::byte>(); };
  known = place_of_process(known);
  return known.local_rank >= 0 ? known.local_rank : known.rank;
}

std::unique_ptr<ProcessWorld> gpu_process_world(const ProcessPlace& place, int device, bool share_gpus,
                                                std::chrono::milliseconds deadline) {
  auto world =
      make_cuda_process_world({.place = place, .device = device, .deadline = deadline, .share_gpus = share_gpus});
  nothing_on_gpu(device);
  return world;
}

void swiglu_on_gpu(const AnyFormat& format, const SwigluInput& in, const SwigluOutput& out,
                   const SwigluOptions& options, std::uintptr_t stream) {
  cuda_swiglu(format, in, out, options, {.stream = stream_of(stream)});
}

void load_decoder(const AnyFormat& format, int device) {
  const CurrentGpu scope(device);
  load_cuda_decode_rows(format);
}

void decode_on_gpu(const Exchange& exchange, const DispatchOutput& rows, const Tensor& values, const RowPlace& place,
                   const ConstTensor& input_scale, std::uintptr_t stream) {
  if (input_scale && (input_scale.dtype != DType::f32 || input_scale.elements() != 1))
    throw Error(ErrorKind::invalid_argument, "input_scale is " + to_string(input_scale) + "; it must be f32 [1]");
  const DecodeOptions options{.row_order = place.order,
                              .expert_stride = place.expert_stride,
                              .input_scale = input_scale.as<float>(),
                              .zero_padding = true};
  cuda_decode_rows(exchange.format(place.format), exchange.layout(place.format), rows, values, options,
                   {.stream = stream_of(stream)});
}

std::size_t state_bytes(const Shape& shape, const ExchangeOptions& options, int rank) {
  return cuda_state_bytes(shape, options, rank);
}

void* nothing_on_gpu(int device) {
  static std::mutex guard;
  static std::map<int, void*> made;
  const std::lock_guard lock(guard);
  void*& memory = made[device];
  if (memory != nullptr) return memory;
  const CurrentGpu scope(device);
  require_success(cudaMalloc(&memory, 256), "cudaMalloc");
  return memory;
}

// Waits before it copies: a copy into pageable memory that stands behind a waiting kernel holds up every other launch
// of the process, those of the rank that the kernel waits for, too.
void copy_to_host(const ConstTensor& tensor, void* to, std::uintptr_t stream) {
  const CurrentGpu scope(tensor.device.index);
  require_success(cudaStreamSynchronize(stream_of(stream)), "cudaStreamSynchronize");
  if (tensor.elements() != 0)
    require_success(cudaMemcpyAsync(to, tensor.data, bytes_of(tensor), cudaMemcpyDeviceToHost, stream_of(stream)),
                    "cudaMemcpyAsync");
  require_success(cudaStreamSynchronize(stream_of(stream)), "cudaStreamSynchronize");
}

void clear_on_gpu(const Tensor& tensor, std::uintptr_t stream) {
  if (tensor.elements() == 0) return;
  const CurrentGpu scope(tensor.device.index);
  require_success(cudaMemsetAsync(tensor.data, 0, bytes_of(tensor), stream_of(stream)), "cudaMemsetAsync");
}

}  // namespace ferry::python
