// F32Weights: the router weights of one call as float32, where the caller gave them in a narrower type.
#pragma once

#include <vector>

#include "ferry/detail/formats/source.h"
#include "ferry/detail/protocol/contracts/args.h"
#include "ferry/tensor.h"

namespace ferry {

class F32Weights {
 public:
  // `weights` with float32 values of the caller's tensor `given`, which is checked, in host memory. They are good until
  // the next call.
  Weights as_f32(const ConstTensor& given, Weights weights) {
    if (weights.data == nullptr || given.dtype == DType::f32) return weights;
    const auto* narrow = given.as<std::uint16_t>();
    values_.resize(static_cast<std::size_t>(given.elements()));
    for (std::size_t i = 0; i < values_.size(); ++i)
      values_[i] = codec::float_of(given.dtype == DType::f16 ? codec::F16Input::float_bits(narrow[i])
                                                             : codec::Bf16Input::float_bits(narrow[i]));
    weights.data = values_.data();
    weights.dtype = DType::f32;
    return weights;
  }

 private:
  std::vector<float> values_;
};

}  // namespace ferry
