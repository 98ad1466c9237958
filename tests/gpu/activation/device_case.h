// An ActivationCase whose tensors are on the current device too.
#pragma once

#include <memory>

#include "device_copy.h"
#include "own_format_kernels.h"
#include "support/activation_case.h"

namespace ferry::test {

class DeviceCase {
 public:
  explicit DeviceCase(ActivationCase& host) : host_(host) {
    in = host.input();
    out = host.output();
    rows_ = copy(in.rows);
    offsets_ = copy(in.row_offsets);
    tiles_ = copy(in.scales_offsets);
    input_scales_ = copy(in.input_scales);
    payload_ = copy_of(host.payload.data(), host.payload.size() * 2, out.payload);
    scales_ = copy_of(host.scales.data(), host.scales.size() * 4, out.scales);
  }

  void run(const CudaLaunch& launch = {}) { cuda_swiglu(host_.format, in, out, host_.shape_.options, launch); }
  // By kernels of the test itself.
  void run_compiled(CompiledSwiglu* swiglu) { swiglu(in, out, host_.shape_.options, {}); }

  // Inputs as the host has them now, and outputs that nothing has written to.
  void reset() {
    rows_->write(host_.input().rows.data);
    offsets_->write(host_.shape_.row_offsets.data());
    if (tiles_) tiles_->write(host_.scales_offsets.data());
    payload_->write(host_.payload.data());
    if (scales_) scales_->write(host_.scales.data());
  }
  // Waits for the device and reads what it wrote, and what it left.
  void read(std::vector<std::uint16_t>& payload, std::vector<std::uint32_t>& scales) const {
    cuda_ok(cudaDeviceSynchronize());
    payload.resize(host_.payload.size());
    payload_->read(payload.data());
    scales = host_.scales;
    if (scales_) scales_->read(scales.data());
  }

  SwigluInput in;
  SwigluOutput out;

 private:
  template <class Byte>
  static std::unique_ptr<DeviceCopy> copy_of(const void* host, std::size_t bytes, BasicTensor<Byte>& tensor) {
    if (!tensor) return nullptr;
    auto made = std::make_unique<DeviceCopy>(host, bytes);
    tensor.data = made->data();
    return made;
  }
  static std::unique_ptr<DeviceCopy> copy(ConstTensor& tensor) {
    return copy_of(tensor.data, static_cast<std::size_t>(tensor.elements()) * size_of(tensor.dtype), tensor);
  }

  ActivationCase& host_;
  std::unique_ptr<DeviceCopy> rows_, offsets_, tiles_, input_scales_, payload_, scales_;
};

}  // namespace ferry::test
