// MoreOutputs: one rank's outputs that a dispatch may leave out, all of them at once, poisoned before the call and
// compared after it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "conformance/rounds/scenario.h"

namespace ferry::conformance {

class MoreOutputs {
 public:
  MoreOutputs(const Scenario& scenario, int rank);
  MoreOutputs(const MoreOutputs&) = delete;
  MoreOutputs& operator=(const MoreOutputs&) = delete;

  // Outputs of the order of this rank's rows.
  void give(DispatchOutput& out);
  void check() const;
  // The memory that `give` gives, with what lies behind it: for a test whose calls take memory elsewhere.
  struct Memory {
    Tensor DispatchOutput::*field;
    std::span<std::byte> bytes;
  };
  std::vector<Memory> memory();
  // Nothing was written.
  void check_untouched() const;

 private:
  struct Words {
    const char* name;
    Tensor DispatchOutput::*field;
    std::vector<std::int64_t> shape;
    DType dtype;
    std::vector<std::int32_t> expected;  // of the tensor and of what lies behind it
    std::vector<std::int32_t> got;
  };
  void add(const char* name, Tensor DispatchOutput::*field, DType dtype, std::vector<std::int64_t> shape,
           std::vector<std::int32_t> expected);
  void add_row_scales();
  void put_expected_scales(std::size_t row, std::byte* to) const;

  const Scenario& scenario_;
  int rank_;
  const test::ExpectedRows& rows_;
  std::int64_t capacity_;
  std::vector<Words> words_;
  std::vector<std::int64_t> waited_ns_;
  // row_scales: [rows, columns] of `scale_width_` bytes, at strides in bytes.
  DType scale_dtype_ = DType::none;
  std::int64_t columns_ = 0, row_stride_ = 0, column_stride_ = 0, group_stride_ = 0, group_rows_ = 0;
  std::vector<std::byte> scales_;
};

}  // namespace ferry::conformance
