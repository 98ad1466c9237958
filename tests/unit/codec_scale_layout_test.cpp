// The scale layouts against formulas of their own, and what a whole tensor holds after its groups are written.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <vector>

#include "ferry/detail/layout/scale_layout.h"

namespace ferry {
namespace {

constexpr std::byte kUntouched{0xa5};

std::vector<std::byte> scales_of_row(std::int64_t row, int count, int bytes) {
  std::vector<std::byte> scales(static_cast<std::size_t>(count * bytes));
  for (std::size_t i = 0; i < scales.size(); ++i)
    scales[i] = static_cast<std::byte>((static_cast<std::size_t>(row) * 31 + i * 7) % 255 + 1);  // never 0
  return scales;
}

TEST(ScaleLayout, RowMajorAndTransposedFollowTheirNames) {
  constexpr int kPerRow = 23;
  constexpr std::int64_t kCapacity = 40;
  for (const int bytes : {1, 2, 4, 8}) {
    for (const bool transposed : {false, true}) {
      std::vector<std::byte> tensor(static_cast<std::size_t>(kPerRow * kCapacity * bytes), kUntouched);
      const ScaleTensor out{tensor.data(), transposed ? ScaleLayout::transposed : ScaleLayout::row_major, bytes,
                            kPerRow, kCapacity};
      EXPECT_EQ(scale_tensor_elements(out, 5), kPerRow * kCapacity);
      store_scales(SerialGroup{}, out, scales_of_row(17, kPerRow, bytes).data(), ScaleRow{17, 3, 99});
      zero_scales(SerialGroup{}, out, ScaleRow{18, 3, 99});
      zero_scale_tail(SerialGroup{}, out, 3, 19, 99);  // tiles only
      for (std::int64_t row = 0; row < kCapacity; ++row) {
        const std::vector<std::byte> want = scales_of_row(row, kPerRow, bytes);
        for (int column = 0; column < kPerRow; ++column) {
          const std::int64_t index = transposed ? column * kCapacity + row : row * kPerRow + column;
          for (int byte = 0; byte < bytes; ++byte) {
            const std::byte got = tensor[static_cast<std::size_t>(index * bytes + byte)];
            const std::byte expected = row == 17   ? want[static_cast<std::size_t>(column * bytes + byte)]
                                       : row == 18 ? std::byte{0}
                                                   : kUntouched;
            ASSERT_EQ(got, expected) << "row " << row << " column " << column << " byte " << byte;
          }
        }
      }
    }
  }
}

// The five indices of a tile tensor, written out one by one.
std::size_t tile_index(std::int64_t first_row, std::uint32_t offset, std::int64_t row, int scale, int per_row) {
  const std::int64_t j = row - first_row;
  const std::int64_t block = first_row / 128 + offset + j / 128;
  const std::int64_t groups_of_four = (per_row + 3) / 4;
  std::int64_t index = block;
  index = index * groups_of_four + scale / 4;
  index = index * 32 + j % 32;
  index = index * 4 + (j % 128) / 32;
  index = index * 4 + scale % 4;
  return static_cast<std::size_t>(index);
}

TEST(ScaleLayout, TilesHoldEveryRowOnceAndZeroElsewhereInTheGroupsBlocks) {
  constexpr int kPerRow = 90;  // 2880 in blocks of 32: rounded up to 92
  const std::int64_t rows_in_group[] = {5, 0, 128, 129, 1, 300, 0, 64};
  for (const std::int64_t alignment : {1, 8, 128}) {
    std::vector<std::int64_t> first{0};
    for (const std::int64_t rows : rows_in_group)
      first.push_back(first.back() + (rows + alignment - 1) / alignment * alignment);
    constexpr int kGroups = 8;
    const std::int64_t capacity = first.back() + 10;
    ScaleTensor out{nullptr, ScaleLayout::tiled, 1, kPerRow, capacity};
    std::vector<std::byte> tensor(static_cast<std::size_t>(scale_tensor_elements(out, kGroups)), kUntouched);
    EXPECT_EQ(tensor.size(), static_cast<std::size_t>((capacity + 127) / 128 + kGroups) * 128 * 92);
    out.base = tensor.data();

    std::int64_t blocks_before = 0;
    std::map<std::size_t, std::byte> want;
    for (std::size_t group = 0; group < kGroups; ++group) {
      const std::int64_t start = first[group];
      const std::int64_t end = first[group + 1];
      const std::uint32_t offset = scales_offset_of(blocks_before, start);
      EXPECT_EQ(offset, static_cast<std::uint32_t>(blocks_before - start / 128));
      const std::int64_t blocks = (end - start + 127) / 128;
      for (std::int64_t row = start; row < start + blocks * 128; ++row) {
        const bool real = row < start + rows_in_group[group];
        const std::vector<std::byte> scales = scales_of_row(row, kPerRow, 1);
        if (real) store_scales(SerialGroup{}, out, scales.data(), ScaleRow{row, start, offset});
        if (!real && row < end) zero_scales(SerialGroup{}, out, ScaleRow{row, start, offset});
        for (int scale = 0; scale < 92; ++scale) {
          const bool fresh =
              want.emplace(tile_index(start, offset, row, scale, kPerRow),
                           real && scale < kPerRow ? scales[static_cast<std::size_t>(scale)] : std::byte{0})
                  .second;
          ASSERT_TRUE(fresh) << "two scales share a place: group " << group << " row " << row;
        }
      }
      zero_scale_tail(SerialGroup{}, out, start, end, offset);
      blocks_before += blocks;
    }
    ASSERT_LE(blocks_before, (capacity + 127) / 128 + kGroups);
    for (std::size_t index = 0; index < tensor.size(); ++index) {
      const auto found = want.find(index);
      ASSERT_EQ(tensor[index], found == want.end() ? kUntouched : found->second) << "scale " << index;
    }
  }
}

TEST(ScaleLayout, NoScalesMeansNothingIsWritten) {
  const ScaleTensor none{};
  store_scales(SerialGroup{}, none, nullptr, ScaleRow{3, 0, 0});
  zero_scale_tail(SerialGroup{}, none, 0, 3, 0);
  EXPECT_EQ(scale_tensor_elements(none, 4), 0);
}

}  // namespace
}  // namespace ferry
