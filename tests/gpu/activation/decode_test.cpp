// Decoding on a GPU gives the values of the CPU's decoders: every code beside every scale, rows of any length, and what
// the encoders make of rows of every kind.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "conversion_kernels.h"
#include "device_copy.h"
#include "support/codec_rows.h"

namespace ferry::test {
namespace {

constexpr float kInputScales[] = {1.0f, 37.5f, 1e-30f, 1e37f};
constexpr float kUntouchedValue = 12345.0f;
constexpr std::size_t kSpareColumns = 4;  // behind each row of values; nothing may write there

std::size_t in_lines(std::size_t bytes) { return (bytes + 15) / 16 * 16; }

// Encoded rows of one format in memory as a decoder wants them: every row 16-byte aligned.
class CodedRows {
 public:
  CodedRows(const AnyFormat& format, int num_rows, int hidden)
      : format_(format),
        hidden_(hidden),
        payload_bytes_(format.payload_bytes(hidden)),
        scale_count_(static_cast<std::size_t>(scales_per_row(format, hidden))),
        rows_{nullptr,
              nullptr,
              in_lines(payload_bytes_),
              in_lines(scale_count_ * static_cast<std::size_t>(format.scale_bytes())),
              static_cast<std::size_t>(hidden) + kSpareColumns,
              num_rows,
              hidden,
              1.0f},
        payload_(count() * rows_.payload_pitch / sizeof(Line)),
        scales_(count() * rows_.scale_pitch / sizeof(Line)) {
    rows_.payload = payload(0);
    rows_.scales = scales(0);
  }

  std::size_t count() const { return static_cast<std::size_t>(rows_.num_rows); }
  std::size_t payload_bytes() const { return payload_bytes_; }
  std::size_t scale_count() const { return scale_count_; }
  std::byte* payload(std::size_t row) { return bytes_of(payload_) + row * rows_.payload_pitch; }
  std::byte* scales(std::size_t row) { return bytes_of(scales_) + row * rows_.scale_pitch; }

  void expect_same_values() {
    for (const float input_scale : kInputScales) {
      rows_.input_scale = input_scale;
      std::vector<float> got(count() * rows_.value_pitch, kUntouchedValue);
      std::vector<float> want = got;
      decode_on_device(format_.name(), rows_, got.data());
      for (std::size_t row = 0; row < count(); ++row)
        format_.decode(SerialGroup{}, payload(row), scales(row), hidden_, input_scale,
                       want.data() + row * rows_.value_pitch);
      for (std::size_t at = 0; at < want.size(); ++at)
        ASSERT_TRUE(is_same(got[at], want[at]))
            << format_.name() << " row " << at / rows_.value_pitch << " column " << at % rows_.value_pitch << " of "
            << hidden_ << ", input scale " << input_scale << ": " << got[at] << " in place of " << want[at];
    }
  }

 private:
  struct alignas(16) Line {
    std::byte bytes[16];
  };
  static std::byte* bytes_of(std::vector<Line>& lines) { return lines.empty() ? nullptr : lines.data()->bytes; }
  // Bit for bit; a NaN is a NaN, as arithmetic on a GPU makes another one than on a CPU.
  static bool is_same(float got, float want) {
    return std::isnan(want) ? std::isnan(got) : std::bit_cast<std::uint32_t>(got) == std::bit_cast<std::uint32_t>(want);
  }

  AnyFormat format_;
  int hidden_;
  std::size_t payload_bytes_, scale_count_;
  EncodedRows rows_;
  std::vector<Line> payload_, scales_;
};

// The scale of row `row` of 256: every byte, or as float32 those at the ends of the range and others between.
std::uint32_t scale_of_row(const AnyFormat& format, std::size_t row) {
  if (format.scale_bytes() != 4) return static_cast<std::uint32_t>(row);
  using Limits = std::numeric_limits<float>;
  constexpr float kEnds[] = {0.0f,
                             1e-4f / 448,
                             1.0f,
                             Limits::denorm_min(),
                             Limits::min(),
                             Limits::max(),
                             Limits::infinity(),
                             Limits::quiet_NaN()};
  if (row < std::size(kEnds)) return std::bit_cast<std::uint32_t>(kEnds[row]);
  return static_cast<std::uint32_t>(row) << 23 | 0x2AAAAAu * (static_cast<std::uint32_t>(row) % 3);  // every exponent
}

// In 1024 columns of counted bytes every byte comes, and of 6 bits every code at each of its four places.
TEST(DeviceDecoding, GivesTheCpusValueOfEveryCodeAtEveryScale) {
  FERRY_SKIP_WITHOUT_GPU();
  for (const AnyFormat& format : all_formats()) {
    CodedRows rows(format, 256, 1024);
    const bool is_bf16 = format.block() == 0;
    for (std::size_t row = 0; row < rows.count(); ++row) {
      // bf16: 1024 of its 65536 values in each of 64 rows, and again.
      for (std::size_t at = 0; at < rows.payload_bytes(); ++at) {
        const std::size_t value = row * 1024 + at / 2;
        rows.payload(row)[at] = static_cast<std::byte>(!is_bf16 ? at : at % 2 == 0 ? value : value >> 8);
      }
      const std::uint32_t scale = scale_of_row(format, row);
      const auto bytes = static_cast<std::size_t>(format.scale_bytes());
      for (std::size_t at = 0; at < rows.scale_count(); ++at) std::memcpy(rows.scales(row) + at * bytes, &scale, bytes);
    }
    ASSERT_NO_FATAL_FAILURE(rows.expect_same_values());
  }
}

TEST(DeviceDecoding, GivesTheCpusValuesOfRowsOfAnyLength) {
  FERRY_SKIP_WITHOUT_GPU();
  std::mt19937 random(5);
  for (const AnyFormat& format : all_formats()) {
    for (const int hidden : {32, 96, 288, 2880, 7168}) {
      CodedRows rows(format, 5, hidden);
      const auto fill = [&](std::byte* bytes, std::size_t count) {
        for (std::size_t at = 0; at < count; ++at) bytes[at] = static_cast<std::byte>(random());
      };
      for (std::size_t row = 0; row < rows.count(); ++row) {
        fill(rows.payload(row), rows.payload_bytes());
        fill(rows.scales(row), rows.scale_count() * static_cast<std::size_t>(format.scale_bytes()));
      }
      ASSERT_NO_FATAL_FAILURE(rows.expect_same_values());
    }
  }
}

TEST(DeviceDecoding, GivesTheCpusValuesOfWhatWasEncoded) {
  FERRY_SKIP_WITHOUT_GPU();
  std::mt19937 random(6);
  constexpr int kHidden = 2880;
  for (const AnyFormat& format : all_formats()) {
    CodedRows rows(format, 24, kHidden);
    for (std::size_t row = 0; row < rows.count(); ++row) {
      const TypedRow given = random_row(row % 2 == 0 ? DType::bf16 : DType::f32, kHidden, random);
      format.encode(SerialGroup{}, given.input(), kHidden, 1.0f, rows.payload(row), rows.scales(row));
    }
    ASSERT_NO_FATAL_FAILURE(rows.expect_same_values());
  }
}

}  // namespace
}  // namespace ferry::test
