// bytes_format: sizes, names, and what is refused; scales of two bytes in a dispatch.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "ferry/ferry.h"

namespace ferry {
namespace {

void expect_error(ErrorKind kind, const std::vector<std::string>& fragments, const std::function<void()>& call) {
  try {
    call();
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    for (const std::string& fragment : fragments)
      EXPECT_NE(std::string(error.what()).find(fragment), std::string::npos) << error.what() << "\nlacks " << fragment;
  }
}

TEST(BytesFormat, HasItsSizesForAnyHidden) {
  const AnyFormat format = bytes_format({.payload_bytes = 7168, .scales_per_row = 56});
  EXPECT_STREQ(format.name(), "bytes_7168_56x4");
  for (const int hidden : {32, 2880, 7168}) {
    EXPECT_EQ(format.payload_bytes(hidden), 7168u);
    EXPECT_EQ(scales_per_row(format, hidden), 56);
    EXPECT_EQ(message_bytes(format, hidden), 7168u + 56 * 4);
  }
  EXPECT_FALSE(format.encodes());
  EXPECT_FALSE(format.takes_input_scale());
  EXPECT_EQ(format.alignment(), 1);
  EXPECT_TRUE(format_named("bf16").encodes());
}

TEST(BytesFormat, IsFoundByItsName) {
  const BytesRow rows[] = {
      {.payload_bytes = 16},
      {.payload_bytes = 4096, .scales_per_row = 3, .scale_bytes = 2},
      {.payload_bytes = 64, .scales_per_row = 2, .scale_layout = ScaleLayout::transposed},
      {.payload_bytes = 64, .scales_per_row = 4, .scale_bytes = 1, .scale_layout = ScaleLayout::tiled}};
  const char* const names[] = {"bytes_16", "bytes_4096_3x2", "bytes_64_2x4_transposed", "bytes_64_4x1_tiled"};
  for (std::size_t i = 0; i < std::size(rows); ++i) {
    EXPECT_STREQ(bytes_format(rows[i]).name(), names[i]);
    EXPECT_EQ(format_named(names[i]), bytes_format(rows[i]));
  }
}

TEST(BytesFormat, WithoutScalesIsOneFormatWhateverTheySay) {
  EXPECT_EQ(bytes_format({.payload_bytes = 32, .scale_bytes = 1}), bytes_format({.payload_bytes = 32}));
  EXPECT_NE(bytes_format({.payload_bytes = 32, .scales_per_row = 1, .scale_bytes = 1}),
            bytes_format({.payload_bytes = 32, .scales_per_row = 1}));
}

TEST(BytesFormat, ScalesOfTwoBytesAreTwoColumns) {
  const AnyFormat format = bytes_format({.payload_bytes = 32, .scales_per_row = 3, .scale_bytes = 2});
  EXPECT_EQ(format.scale_bytes(), 1);
  EXPECT_EQ(scales_per_row(format, 64), 6);
}

TEST(BytesFormat, RefusesSizesThatCannotBe) {
  constexpr auto kInvalid = ErrorKind::invalid_argument;
  for (const std::int64_t bytes : {0, -16, 24, (1 << 25) + 16})
    expect_error(kInvalid, {"payload_bytes", std::to_string(bytes), "16"},
                 [&] { bytes_format({.payload_bytes = bytes}); });
  for (const int count : {-1, (1 << 20) + 1})
    expect_error(kInvalid, {"scales_per_row", std::to_string(count)},
                 [&] { bytes_format({.payload_bytes = 16, .scales_per_row = count}); });
  expect_error(kInvalid, {"scale_bytes is 3", "1, 2 or 4"},
               [] { bytes_format({.payload_bytes = 16, .scales_per_row = 1, .scale_bytes = 3}); });
  for (const auto& [bytes, layout] : {std::pair{2, ScaleLayout::transposed}, std::pair{4, ScaleLayout::tiled},
                                      std::pair{2, ScaleLayout::tiled}, std::pair{1, ScaleLayout::none}})
    expect_error(kInvalid, {"scale_layout", to_string(layout), std::to_string(bytes)}, [&] {
      bytes_format({.payload_bytes = 16, .scales_per_row = 1, .scale_bytes = bytes, .scale_layout = layout});
    });
  for (const char* name :
       {"bytes_", "bytes_x", "bytes_16_", "bytes_16_2", "bytes_16_2x", "bytes_16_0x4", "bytes_16_2x4_",
        "bytes_16_2x4_row_major", "bytes_016", "bytes_16_02x4", "bytes_+16", "bytes_16 ", "bytes_99999999999999999999"})
    expect_error(kInvalid, {"'" + std::string(name) + "'", "bytes_7168_56x4"}, [&] { format_named(name); });
  expect_error(kInvalid, {"payload_bytes is 17"}, [] { format_named("bytes_17"); });
}

TEST(BytesFormat, NothingDecodesItsRows) {
  const AnyFormat format = bytes_format({.payload_bytes = 32});
  std::vector<std::byte> bytes(64);
  float values[32];
  expect_error(ErrorKind::unsupported, {"decode", "never looked at"},
               [&] { format.decode(SerialGroup{}, bytes.data(), nullptr, 32, 1.0f, values); });
  expect_error(ErrorKind::unsupported, {"encode", "never looked at"}, [&] {
    format.encode(SerialGroup{}, {bytes.data(), DType::bf16}, 32, 1.0f, bytes.data(), nullptr);
  });
}

// One rank and one expert: rows come in the order of tokens.
TEST(BytesFormat, ScalesOfTwoBytesComeAsTheyWere) {
  const std::vector<std::unique_ptr<World>> worlds = make_thread_worlds(1);
  ExchangeOptions options;
  options.format = bytes_format({.payload_bytes = 48, .scales_per_row = 3, .scale_bytes = 2});
  const Shape shape{.ranks = 1, .experts = 1, .top_k = 1, .max_tokens = 5, .hidden = 32};
  Exchange exchange(*worlds[0], shape, options);
  std::vector<std::uint8_t> tokens(5 * 48), scales(5 * 6);
  std::iota(tokens.begin(), tokens.end(), std::uint8_t{1});
  std::iota(scales.begin(), scales.end(), std::uint8_t{101});
  const std::vector<std::int32_t> ids(5, 0);
  HostRows rows(exchange);
  exchange.dispatch({.tokens = ConstTensor(tokens.data(), DType::u8, {5, 48}),
                     .topk_ids = ConstTensor(ids.data(), DType::i32, {5, 1}),
                     .token_scales = ConstTensor(scales.data(), DType::u8, {5, 6})},
                    rows.arrivals());
  EXPECT_EQ(std::memcmp(rows.arrivals().payload.data, tokens.data(), tokens.size()), 0);
  EXPECT_EQ(std::memcmp(rows.arrivals().scales.data, scales.data(), scales.size()), 0);
  expect_error(ErrorKind::invalid_argument, {"bytes_48_3x2", "never looked at"}, [&] { rows.values(0); });
}

TEST(BytesFormat, SwigluRefusesIt) {
  const std::vector<std::uint16_t> rows(64);
  std::vector<std::byte> payload(32);
  const std::uint32_t offsets[] = {0, 1};
  expect_error(ErrorKind::invalid_argument, {"bytes_32", "never looked at"}, [&] {
    swiglu(
        bytes_format({.payload_bytes = 32}),
        {.rows = ConstTensor(rows.data(), DType::bf16, {1, 64}), .row_offsets = ConstTensor(offsets, DType::u32, {2})},
        {.payload = Tensor(payload.data(), DType::u8, {1, 32})});
  });
}

}  // namespace
}  // namespace ferry
