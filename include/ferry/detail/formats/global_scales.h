// GlobalScales: the tensor of 1 / g of each row, where rows have one (ExchangeOptions::dynamic_scales). It travels as
// float32. The caller's tensor is f32, or bf16: rounded once, to nearest even.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "ferry/detail/formats/row_sum.h"
#include "ferry/formats/portable.h"
#include "ferry/tensor.h"

namespace ferry {

template <class Byte>
struct GlobalScalesOf {
  Byte* data = nullptr;  // null: not asked for
  DType dtype = DType::f32;

  template <class AnyTensor>
  static GlobalScalesOf of(const AnyTensor& tensor) {
    return {static_cast<Byte*>(tensor.data), tensor.dtype};
  }
  FERRY_HD bool are_given() const { return data != nullptr; }
  FERRY_HD void put(std::int64_t row, float value) const {
    static_assert(!std::is_const_v<Byte>);
    if (dtype == DType::bf16)
      reinterpret_cast<std::uint16_t*>(data)[row] = float_to_bf16(value);
    else
      reinterpret_cast<float*>(data)[row] = value;
  }
  FERRY_HD float at(std::int64_t row) const {
    if (dtype == DType::bf16) return bf16_to_float(reinterpret_cast<const std::uint16_t*>(data)[row]);
    return reinterpret_cast<const float*>(data)[row];
  }
};
using GlobalScales = GlobalScalesOf<std::byte>;
using GivenGlobalScales = GlobalScalesOf<const std::byte>;

}  // namespace ferry
