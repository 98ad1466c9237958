// What the oracle's orders of rows are made of.
#pragma once

#include "conformance/oracle/oracle.h"
#include "conformance/oracle/size.h"

namespace ferry::test {

// The rows of every group, by source, token and k.
std::vector<std::vector<RowOrigin>> rows_by_group(const Round& round, int rank);

struct EncodedToken {
  std::vector<std::byte> payload;
  std::vector<std::byte> scales;
  float inverse = 0;  // dynamic_scales: what its values are multiplied by
};

// In column order.
inline std::size_t scale_bytes_of_row(const Round& round) {
  return size(scales_per_row(round.options.format, round.shape.hidden) * round.options.format.scale_bytes());
}
EncodedToken encode(const Round& round, const RowOrigin& row);

// Where the scales of a group lie.
struct ScaleGroup {
  std::int64_t first = 0;        // row of the group
  std::int64_t tile = 0;         // its first tile
  std::int64_t begin = 0;        // transposed: scales before its first column
  std::int64_t column_step = 0;  // transposed: scales from one column to the next
};
// Index, in scales, of scale `column` of row `j` of a group.
std::size_t scale_index(ScaleLayout layout, const ScaleGroup& group, int per_row, std::int64_t j, int column);

std::size_t scale_tensor_bytes(const Round& round, int rank, std::int64_t row_capacity);

// Zeroes the tiles that `rows` rows of a group take.
void zero_tiles(const Round& round, const ScaleGroup& group, std::int64_t rows, ExpectedRows& out);
// Payload and scales of row `j` of a group; where `row` is padding, only the scales, which are 0.
void put_row(const Round& round, const ScaleGroup& group, std::int64_t j, const RowOrigin& row, ExpectedRows& out);

// The orders of rows.
ExpectedRows rows_by_expert(const Round& round, int rank, std::int64_t row_capacity, std::byte poison);
ExpectedRows rows_by_source(const Round& round, int rank, std::int64_t row_capacity, std::byte poison);
ExpectedRows rows_in_place(const Round& round, int rank, std::int64_t row_capacity, std::byte poison);
ExpectedRows padded_rows(const Round& round, int rank, std::int64_t row_capacity, std::byte poison);

}  // namespace ferry::test
