// The arithmetic of combine: the order, the roundings, and that the machine's fast sums give the same bytes.
#include "ferry/detail/formats/row_sum.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <vector>

#include "conformance/oracle/routing_patterns.h"
#include "cpu/rows/host_ops.h"

namespace ferry {
namespace {

float random_float(test::Random& random) {
  const auto bits = static_cast<std::uint32_t>(random.bits());
  const std::uint32_t exponent = 100 + bits % 50;
  return std::bit_cast<float>((bits & 0x807fffffu) | exponent << 23);
}

struct Rows {
  Rows(test::Random& random, int count, int hidden, bool wide) {
    for (int i = 0; i < count; ++i) {
      memory.emplace_back(static_cast<std::size_t>(hidden) * (wide ? 4 : 2));
      for (int c = 0; c < hidden; ++c) {
        const float value = random.chance(0.02) ? -0.0f : random_float(random);
        const std::uint16_t narrow = float_to_bf16(value);
        std::byte* to = memory.back().data() + static_cast<std::size_t>(c) * (wide ? 4 : 2);
        if (wide)
          std::memcpy(to, &value, 4);
        else
          std::memcpy(to, &narrow, 2);
      }
      rows.push_back({memory.back().data(), random_float(random), wide ? DType::f32 : DType::bf16});
    }
  }
  std::vector<std::vector<std::byte>> memory;
  std::vector<SumRow> rows;
};

// Two rounded operations for each row, in the order of the rows, from +0.
float plain_sum(const std::vector<SumRow>& rows, int column) {
  float sum = 0.0f;
  for (const SumRow& row : rows) {
    volatile float product = row.weight * row.at(column);
    volatile float next = sum + product;
    sum = next;
  }
  return sum;
}

TEST(RowSum, AddsInTheOrderOfTheRowsAndRoundsOnce) {
  test::Random random(3);
  for (const int hidden : {32, 96, 544, 2880}) {
    for (int count = 0; count <= 9; ++count) {
      for (const bool wide : {false, true}) {
        const Rows rows(random, count, hidden, wide);
        for (const DType dtype : {DType::bf16, DType::f32}) {
          std::vector<std::byte> generic(static_cast<std::size_t>(hidden) * size_of(dtype));
          std::vector<std::byte> fast(generic.size());
          RowSink sink;
          sink.dtype = dtype;
          sink.data = generic.data();
          sum_rows(SerialGroup{}, rows.rows.data(), count, hidden, sink);
          sink.data = fast.data();
          cpu::HostOps{}.sum_rows(cpu::HostGroup{}, rows.rows.data(), count, hidden, sink);
          ASSERT_EQ(generic, fast) << "hidden " << hidden << ", " << count << " rows";
          for (int c = 0; c < hidden; ++c) {
            const float expected = plain_sum(rows.rows, c);
            if (dtype == DType::f32)
              ASSERT_EQ(std::bit_cast<std::uint32_t>(reinterpret_cast<const float*>(fast.data())[c]),
                        std::bit_cast<std::uint32_t>(expected));
            else
              ASSERT_EQ(reinterpret_cast<const std::uint16_t*>(fast.data())[c], float_to_bf16(expected));
          }
        }
      }
    }
  }
}

TEST(RowSum, AnEpilogueTakesEveryColumnOnceInPlaceOfTheStore) {
  test::Random random(4);
  constexpr int kHidden = 1056;
  const Rows rows(random, 3, kHidden, false);
  std::vector<float> taken(kHidden);
  std::vector<int> calls(kHidden, 0);
  struct Context {
    std::vector<float>& taken;
    std::vector<int>& calls;
  } context{taken, calls};
  RowSink sink;
  sink.context = &context;
  sink.token = 6;
  sink.epilogue = [](void* at, int token, int column, const float* values, int count) {
    EXPECT_EQ(token, 6);
    for (int i = 0; i < count; ++i) {
      static_cast<Context*>(at)->taken[static_cast<std::size_t>(column + i)] = values[i];
      ++static_cast<Context*>(at)->calls[static_cast<std::size_t>(column + i)];
    }
  };
  cpu::HostOps{}.sum_rows(cpu::HostGroup{}, rows.rows.data(), 3, kHidden, sink);
  for (int c = 0; c < kHidden; ++c) {
    EXPECT_EQ(calls[static_cast<std::size_t>(c)], 1);
    EXPECT_EQ(taken[static_cast<std::size_t>(c)], plain_sum(rows.rows, c));
  }
}

TEST(RowSum, RoundsToNearestEvenAndKeepsNaN) {
  EXPECT_EQ(float_to_bf16(std::bit_cast<float>(0x3f808000u)), 0x3f80);  // a tie goes to the even neighbour
  EXPECT_EQ(float_to_bf16(std::bit_cast<float>(0x3f818000u)), 0x3f82);
  EXPECT_EQ(float_to_bf16(std::bit_cast<float>(0x3f808001u)), 0x3f81);
  EXPECT_EQ(float_to_bf16(std::bit_cast<float>(0x7f7fffffu)), 0x7f80);  // past the largest: infinity
  EXPECT_TRUE(bf16_to_float(float_to_bf16(std::bit_cast<float>(0x7f800001u))) !=
              bf16_to_float(float_to_bf16(std::bit_cast<float>(0x7f800001u))));
  EXPECT_EQ(float_to_bf16(-0.0f), 0x8000);
}

TEST(ConvertRow, KeepsRowsAsTheyAre) {
  test::Random random(5);
  const Rows rows(random, 1, 96, false);
  std::vector<std::byte> out(96 * 2);
  cpu::HostOps{}.convert_row(cpu::HostGroup{}, rows.rows[0], 96, out.data(), DType::bf16);
  EXPECT_EQ(out, rows.memory[0]);
}

}  // namespace
}  // namespace ferry
