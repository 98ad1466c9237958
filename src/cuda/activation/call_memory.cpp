#include "cuda/activation/call_memory.h"

#include <fmt/core.h>

#include "ferry/detail/activation/call_tensor.h"
#include "ferry/detail/cuda/state/cuda_check.h"

namespace ferry::cuda {

using activation::refuse_call;

CallMemory::CallMemory(const char* call, const char* first_name, const ConstTensor& first)
    : call_(call), first_name_(first_name) {
  int current = 0;
  cuda_check(cudaGetDevice(&current), "cudaGetDevice");
  device_ = device_of(first_name, first, current);
}

// The device that the tensor's owner names, or else that of its memory; `any` where managed memory is on every device.
int CallMemory::device_of(const char* name, const ConstTensor& tensor, int any) const {
  if (tensor.device.kind == Device::Kind::cuda) return tensor.device.index;
  if (tensor.device.kind == Device::Kind::cpu)
    refuse_call(call_, fmt::format("{} is host memory; it must be memory of a GPU", name));
  cudaPointerAttributes attributes{};
  cuda_check(cudaPointerGetAttributes(&attributes, tensor.data), "cudaPointerGetAttributes");
  if (attributes.type == cudaMemoryTypeManaged) return any;
  if (attributes.type != cudaMemoryTypeDevice)
    refuse_call(call_, fmt::format("{} at {} is host memory; it must be memory of a GPU", name, tensor.data));
  return attributes.device;
}

void CallMemory::require(const char* name, const ConstTensor& tensor) const {
  if (!tensor) return;
  const int holder = device_of(name, tensor, device_);
  if (holder != device_)
    refuse_call(
        call_, fmt::format("{} is memory of device {}; {} is memory of device {}", name, holder, first_name_, device_));
}

void CallMemory::require_stream(cudaStream_t stream) const {
  if (stream == nullptr) return;
  cudaStreamCaptureStatus capturing = cudaStreamCaptureStatusNone;
  cuda_check(cudaStreamIsCapturing(stream, &capturing), "cudaStreamIsCapturing");
  if (capturing != cudaStreamCaptureStatusNone)
    return;  // CUDA does not tell the device of a captured stream; a launch on a wrong one fails
  int of = device_;
  cuda_check(cudaStreamGetDevice(stream, &of), "cudaStreamGetDevice");
  if (of != device_)
    refuse_call(call_, fmt::format("stream is of device {}; {} is memory of device {}", of, first_name_, device_));
}

}  // namespace ferry::cuda
