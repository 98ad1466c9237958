// What `ferry codec decode` reads: an array of rows with their scales beside it, or the rows of a dispatch, as a rank's
// folder of `ferry layer --dump` holds them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "ferry/rows/host_rows.h"
#include "tool/io/memory.h"
#include "tool/io/npy.h"

namespace ferry::app {

// Columns of a payload row. Throws Error(invalid_argument) where the format has no such row.
int hidden_of_payload(const NpyFile& payload, const AnyFormat& format);

// As shapes of .npy files.
DType scale_dtype(const AnyFormat& format);

// Throws Error(invalid_argument) where the scales are not [rows, scales of a row], and says what they are where they
// lie as a dispatch of the format lays them out.
void require_scales(const NpyFile& scales, const AnyFormat& format, std::int64_t rows, int hidden);

// What a rank's folder of `ferry layer --dump` says of its rows.
struct DumpedFormat {
  std::string name;
  float input_scale = 1.0f;
};
// Empty where the folder says nothing. Throws Error(invalid_argument) where what it says is not what layer writes.
std::optional<DumpedFormat> format_of_dump(const std::string& folder);

// Throws Error(invalid_argument) where the folder names another format, and notes another scale of the input. A folder
// that says nothing passes.
void require_format_of_dump(const AnyFormat& format, float input_scale, const std::string& folder);

class DumpedRows {
 public:
  // `folder`: <dump>/rank<r>. Throws Error(io) where a file is missing, and Error(invalid_argument) where the files do
  // not fit the format or each other.
  DumpedRows(const AnyFormat& format, const std::string& folder);

  std::int64_t rows() const { return payload_.extent(0); }
  int hidden() const { return layout_.hidden; }
  void decode(std::int64_t row, std::span<float> values, float input_scale) const;

 private:
  void take_scales(const std::string& folder);

  AnyFormat format_;
  NpyFile payload_, row_offsets_;
  std::optional<NpyFile> scales_offsets_;
  Pages scales_;  // of the shape that a dispatch has, where the file is trimmed
  RowLayout layout_;
  DispatchOutput output_;
};

}  // namespace ferry::app
