// The instructions that encode on a GPU give the codes of the CPU's codec: every bf16 at every power of two, and rows
// of every kind at every scale exponent.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "conversion_kernels.h"
#include "device_copy.h"
#include "support/codec_rows.h"

namespace ferry::test {
namespace {

TEST(DeviceConversions, GiveTheCodesOfEveryBf16AtEveryPowerOfTwo) {
  FERRY_SKIP_WITHOUT_GPU();
  for (const char* element : {"e4m3", "e4m3 by 8", "e2m3", "e3m2", "e2m1"}) {
    const Difference found = count_code_differences(element);
    EXPECT_EQ(found.count, 0u) << element << ": bits " << std::hex << found.value << " times " << found.multiplier;
  }
}

TEST(DeviceConversions, ShortDivisionsAreThoseOfIeee) {
  FERRY_SKIP_WITHOUT_GPU();
  for (const Division division : {Division::reciprocal, Division::amax_by_448, Division::of_448_by_amax}) {
    const Difference found = count_division_differences(division);
    EXPECT_EQ(found.count, 0u) << static_cast<int>(division) << ": bits " << std::hex << found.value;
  }
}

// Rows in one array, and what the CPU makes of each.
void expect_same_rows(const AnyFormat& format, const std::vector<TypedRow>& rows, int hidden, float input_scale) {
  const DType dtype = rows.front().dtype;
  std::vector<std::byte> input;
  for (const TypedRow& row : rows) {
    const auto* const bytes = static_cast<const std::byte*>(row.input().data);
    input.insert(input.end(), bytes, bytes + static_cast<std::size_t>(hidden) * size_of(dtype));
  }
  const std::size_t count = rows.size();
  std::vector<std::byte> payload(count * static_cast<std::size_t>(hidden) * 2);
  std::vector<std::byte> scales(payload.size() / 8);
  std::vector<std::uint32_t> non_finite(count);
  encode_on_device(format.name(), input.data(), dtype, static_cast<int>(count), hidden, input_scale, payload.data(),
                   scales.data(), non_finite.data());
  const std::size_t payload_bytes = format.payload_bytes(hidden);
  const auto scale_bytes =
      static_cast<std::size_t>(scales_per_row(format, hidden)) * static_cast<std::size_t>(format.scale_bytes());
  for (std::size_t row = 0; row < count; ++row) {
    const Encoded want = encode(format, rows[row].input(), hidden, input_scale);
    Encoded got;
    const auto take = [](const std::vector<std::byte>& from, std::size_t begin, std::size_t bytes) {
      const auto* const first = reinterpret_cast<const std::uint8_t*>(from.data()) + begin;
      return std::vector<std::uint8_t>(first, first + bytes);
    };
    got.payload = take(payload, row * payload_bytes, payload_bytes);
    got.scales = take(scales, row * scale_bytes, scale_bytes);
    got.non_finite = static_cast<int>(non_finite[row]);
    ASSERT_EQ(got, want) << format.name() << ' ' << to_string(dtype) << " row " << row << " of " << hidden;
  }
}

TEST(DeviceConversions, RandomRowsEncodeAsOnTheCpu) {
  FERRY_SKIP_WITHOUT_GPU();
  std::mt19937 random(3);
  for (const AnyFormat& format : all_formats()) {
    for (const DType dtype : {DType::bf16, DType::f16, DType::f32}) {
      for (const int hidden : {32, 96, 288, 2880, 7168}) {
        std::vector<TypedRow> rows;
        for (int i = 0; i < 40; ++i) rows.push_back(random_row(dtype, hidden, random));
        // NaNs with different payloads, and infinities.
        for (std::size_t row = 0; row < 4; ++row) {
          const std::size_t at = random() % static_cast<std::size_t>(hidden);
          if (dtype == DType::f32)
            rows[row].floats[at] =
                row % 2 == 0 ? -std::numeric_limits<float>::quiet_NaN() : std::numeric_limits<float>::infinity();
          else
            rows[row].halves[at] = static_cast<std::uint16_t>(row % 2 == 0          ? 0xfff3
                                                              : dtype == DType::f16 ? 0x7c00
                                                                                    : 0x7f80);
        }
        for (const float input_scale : {1.0f, 37.5f, 1e-30f, 1e37f})
          ASSERT_NO_FATAL_FAILURE(expect_same_rows(format, rows, hidden, input_scale));
      }
    }
  }
}

// Blocks of 16 with their largest at each exponent, so that every scale of a format comes.
TEST(DeviceConversions, EveryScaleExponentEncodesAsOnTheCpu) {
  FERRY_SKIP_WITHOUT_GPU();
  std::mt19937 random(4);
  constexpr int kHidden = 1024;
  std::vector<TypedRow> rows;
  for (int field = 0; field < 255; ++field) {
    TypedRow row;
    row.dtype = DType::bf16;
    for (int column = 0; column < kHidden; ++column) {
      const int below = column % 16 == 0 ? 0 : static_cast<int>(random() % 12);
      const int lowered = std::max(field - below, 0);
      append(row, static_cast<std::uint16_t>((random() & 0x807fu) | static_cast<std::uint32_t>(lowered) << 7), random);
    }
    rows.push_back(row);
  }
  for (const AnyFormat& format : all_formats())
    for (const float input_scale : {1.0f, 1234.5f, 1e-20f, 0x1.e26248p-128f, 3e38f})
      ASSERT_NO_FATAL_FAILURE(expect_same_rows(format, rows, kHidden, input_scale));
}

}  // namespace
}  // namespace ferry::test
