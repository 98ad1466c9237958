// The CPU's copies, sums and scale stores give the same bytes as the generic text, past the cache and not.
#include "cpu/rows/host_ops.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

namespace ferry::cpu {
namespace {

using Bytes = std::vector<std::byte>;

// Aligned as the exchange's buffers are; `shift` bytes on, as a caller's may be.
class Buffer {
 public:
  Buffer(std::size_t bytes, std::size_t shift) : lines_(bytes / sizeof(Bytes16) + 8), shift_(shift), bytes_(bytes) {
    std::memset(data(), 0xA5, bytes);
  }
  std::byte* data() { return reinterpret_cast<std::byte*>(lines_.data()) + shift_; }
  Bytes contents() { return Bytes(data(), data() + bytes_); }

 private:
  std::vector<Bytes16> lines_;
  std::size_t shift_;
  std::size_t bytes_;
};

HostGroup group(bool nontemporal) {
  HostGroup group;
  group.nontemporal = nontemporal;
  return group;
}

Bytes random_bytes(std::size_t count) {
  std::mt19937 random(7);
  Bytes bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

class HostOpsTest : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Caches, HostOpsTest, testing::Bool(),
                         [](const auto& test) { return test.param ? "past" : "through"; });

TEST_P(HostOpsTest, CopiesAMessageToItsRows) {
  for (const std::size_t bytes : {std::size_t{40}, std::size_t{64}, std::size_t{1024}, std::size_t{3048}}) {
    for (const std::size_t shift : {std::size_t{0}, std::size_t{8}}) {
      const Bytes message = random_bytes(bytes + 16);
      const std::uint32_t rows[] = {3, 0, 2};
      Buffer expected(4 * bytes, shift);
      Buffer copied(4 * bytes, shift);
      PortableOps{}.copy_to_rows(SerialGroup{}, expected.data(), bytes, rows, 3, message.data(), bytes);
      HostOps{}.copy_to_rows(group(GetParam()), copied.data(), bytes, rows, 3, message.data(), bytes);
      finish_stores(group(GetParam()));
      EXPECT_EQ(copied.contents(), expected.contents()) << bytes << " bytes, shift " << shift;
    }
  }
}

// Random bits in the first row, NaNs and infinities among them; finite values in the others, because two NaNs may give
// either.
TEST_P(HostOpsTest, SumsRows) {
  for (const int hidden : {32, 64, 96, 736, 1056}) {
    Bytes values = random_bytes(static_cast<std::size_t>(hidden) * 4 * 5);
    for (std::size_t at = static_cast<std::size_t>(hidden) * 4 + 1; at < values.size(); at += 2)
      values[at] &= std::byte{0xBF};                                   // no exponent above 2^0
    for (const DType other : {DType::bf16, DType::f16, DType::f32}) {  // of one row
      std::vector<SumRow> rows;
      for (std::size_t i = 0; i < 5; ++i)
        rows.push_back({values.data() + i * static_cast<std::size_t>(hidden) * 4, 0.3f * static_cast<float>(i + 1),
                        i == 3 ? other : DType::bf16});
      for (const DType dtype : {DType::bf16, DType::f16, DType::f32}) {
        Buffer expected(static_cast<std::size_t>(hidden) * 4, 0);
        Buffer summed(static_cast<std::size_t>(hidden) * 4, 0);
        RowSink sink;
        sink.dtype = dtype;
        sink.data = expected.data();
        ferry::sum_rows(SerialGroup{}, rows.data(), 5, hidden, sink);
        sink.data = summed.data();
        HostOps{}.sum_rows(group(GetParam()), rows.data(), 5, hidden, sink);
        finish_stores(group(GetParam()));
        EXPECT_EQ(summed.contents(), expected.contents()) << hidden << " columns, a row of " << to_string(other);
      }
    }
  }
}

TEST_P(HostOpsTest, StoresScales) {
  for (const ScaleLayout layout : {ScaleLayout::row_major, ScaleLayout::transposed, ScaleLayout::tiled}) {
    for (const int scale_bytes : {1, 4}) {
      for (const int per_row : {1, 6, 8}) {
        ScaleTensor out{nullptr, layout, scale_bytes, per_row, 300};
        const auto bytes = static_cast<std::size_t>(scale_tensor_elements(out, 2) * scale_bytes);
        const Bytes scales = random_bytes(static_cast<std::size_t>(per_row * scale_bytes));
        Buffer expected(bytes, 0);
        Buffer stored(bytes, 0);
        for (const std::int64_t row : {130, 131, 258}) {
          const ScaleRow at{row, 130, 1};
          for (const std::byte* from : {static_cast<const std::byte*>(nullptr), scales.data()}) {
            out.base = expected.data();
            ferry::store_scales(SerialGroup{}, out, from, at);
            out.base = stored.data();
            HostOps::store_row_scales(group(GetParam()), out, from, at);
            EXPECT_EQ(stored.contents(), expected.contents()) << to_string(layout) << " row " << row;
          }
        }
      }
    }
  }
}

// The whole block is zeroed before its rows come, so the rows are written after in both.
TEST_P(HostOpsTest, ZeroesTheTailOfAGroupsScales) {
  for (const std::int64_t end_row : {130, 131, 258, 259}) {
    ScaleTensor out{nullptr, ScaleLayout::tiled, 1, 6, 300};
    const auto bytes = static_cast<std::size_t>(scale_tensor_elements(out, 2));
    const Bytes scales = random_bytes(6);
    Buffer expected(bytes, 0);
    Buffer zeroed(bytes, 0);
    out.base = expected.data();
    ferry::zero_scale_tail(SerialGroup{}, out, 130, end_row, 1);
    for (std::int64_t row = 130; row < end_row; ++row)
      ferry::store_scales(SerialGroup{}, out, scales.data(), ScaleRow{row, 130, 1});
    out.base = zeroed.data();
    HostOps{}.zero_scale_tail(group(GetParam()), out, 130, end_row, 1);
    for (std::int64_t row = 130; row < end_row; ++row)
      HostOps::store_row_scales(group(GetParam()), out, scales.data(), ScaleRow{row, 130, 1});
    EXPECT_EQ(zeroed.contents(), expected.contents()) << "rows up to " << end_row;
  }
}

}  // namespace
}  // namespace ferry::cpu
