// A swiglu call with its memory, its float64 oracle, and where each scale lies by a formula of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ferry/rows/activation.h"
#include "support/codec_rows.h"

namespace ferry::test {

struct ActivationShape {
  DType dtype = DType::bf16;
  int inter = 96;
  SwigluOptions options;
  std::vector<std::uint32_t> row_offsets{0, 5, 5, 140, 141};
  int spare_rows = 3;  // behind the last group
};

class ActivationCase {
 public:
  ActivationCase(const AnyFormat& format, const ActivationShape& shape, unsigned seed);

  void set_gate_up(std::size_t row, std::size_t column, float gate, float up);  // before run()
  void run();
  SwigluInput input() const;
  SwigluOutput output();

  std::size_t rows() const { return shape_.row_offsets.back(); }
  std::size_t capacity() const { return rows() + static_cast<std::size_t>(shape_.spare_rows); }
  double oracle(std::size_t row, std::size_t column) const;
  double sigmoid_argument(std::size_t row, std::size_t column) const;  // in the oracle
  float input_scale(std::size_t row) const;
  Encoded encoded_row(std::size_t row) const;  // the row's codes, and its scales gathered in column order
  std::vector<float> decoded_row(std::size_t row) const;

  AnyFormat format;
  ActivationShape shape_;
  std::vector<std::uint16_t> halves;
  std::vector<float> floats;
  std::vector<std::uint32_t> scales_offsets;
  std::vector<float> input_scales;     // empty: not given
  std::vector<std::uint16_t> payload;  // two bytes each, so that it is aligned for bf16
  std::vector<std::uint32_t> scales;   // four bytes each, so that it is aligned for float32

  bool tiled() const { return shape_.options.tiled_scales || format.scale_layout() == ScaleLayout::tiled; }
  int groups() const { return static_cast<int>(shape_.row_offsets.size()) - 1; }
  std::size_t group_of(std::size_t row) const;
  std::size_t scale_index(std::size_t row, std::size_t scale) const;
  std::vector<std::int64_t> scales_shape() const;

 private:
  std::size_t input_index(std::size_t row, std::size_t column, bool up) const;
  double element(std::size_t index) const;
};

}  // namespace ferry::test
