// Rows as a dispatch leaves them, on the host and on the current device, and the values that decode_row gives of each.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "device_copy.h"
#include "ferry/cuda/decode_rows.h"
#include "ferry/rows/host_rows.h"

namespace ferry::test {

struct DecodedShape {
  RowOrder order = RowOrder::by_expert;
  int hidden = 96;
  DType dtype = DType::f32;  // of the values
  bool zero_padding = false;
  bool tiled_scales = false;
  bool dynamic_scales = false;
  bool narrow_global_scales = false;  // in bf16
  float input_scale = 1.0f;
  std::vector<std::uint32_t> rows{5, 0, 135, 1};  // of each group; by_source: of each source
  int spare_rows = 3;                             // behind the last row
};

class DecodedCase {
 public:
  static constexpr std::byte kPoison{0xa5};

  DecodedCase(const AnyFormat& format, const DecodedShape& shape, unsigned seed);

  // Rows of each group or source as they are now, in host memory: in that of the device after copy().
  void set_rows(const std::vector<std::uint32_t>& rows);
  void copy();

  // What cuda_decode_rows is given.
  DispatchOutput on_device() const;
  Tensor values() const;
  DecodeOptions options() const;
  void run(const CudaLaunch& launch = {}) const {
    cuda_decode_rows(format, layout, on_device(), values(), options(), launch);
  }

  // Waits for the device. Empty where each value is that of decode_row, rounded once, and all else is as it should be.
  std::string first_wrong() const;
  void poison_values() const;

  AnyFormat format;
  DecodedShape shape;
  RowLayout layout;
  std::int64_t capacity = 0;

 private:
  struct Held {
    TensorSpec spec;
    std::vector<std::byte> host;
    std::unique_ptr<DeviceCopy> device;
  };
  Held& held(TensorSpec::Field field);
  template <class T>
  T* host(TensorSpec::Field field) {
    return reinterpret_cast<T*>(held(field).host.data());
  }
  std::int64_t stride() const { return layout.expert_rows; }
  bool holds_token(std::int64_t row) const;
  DispatchOutput on_host() const;
  std::vector<float> decoded(std::int64_t row) const;
  void fill(unsigned seed);
  void fill_global_scales(std::mt19937& random);

  std::vector<std::uint32_t> rows_;
  std::vector<bool> is_padding_;  // by_expert: of rows within a group
  std::vector<Held> outputs_;
  std::unique_ptr<DeviceCopy> values_, input_scale_;
};

}  // namespace ferry::test
