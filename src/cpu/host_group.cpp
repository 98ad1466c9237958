// Sums of rows in vectors of a fixed width, which the compiler splits for smaller machines; copies past the cache.
// No contraction: -ffp-contract=off for the whole tree, so every machine gives the same bytes.
#include "cpu/host_group.h"

#include <algorithm>
#include <cstring>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "cpu/codec/simd.h"
#include "ferry/shape.h"

namespace ferry::cpu {
namespace {

constexpr int kLanes = 16;
constexpr int kAhead = 256;  // columns from a load to its prefetch: the rows of a token lie far apart
using Halves = std::uint16_t __attribute__((vector_size(kLanes * 2)));
using Words = std::uint32_t __attribute__((vector_size(kLanes * 4)));
using Floats = float __attribute__((vector_size(kLanes * 4)));

// bf16 rows to a bf16 sum: all of by_rank. The sums of kParts * kLanes columns stay in registers.
struct SumBf16 {
  template <int kParts>
  static void columns(const SumRow* rows, int count, int column, std::uint16_t* out) {
    Floats sum[kParts] = {};
    for (int i = 0; i < count; ++i) {
      const auto* row = reinterpret_cast<const std::uint16_t*>(rows[i].data) + column;
      const float weight = rows[i].weight;
#pragma GCC unroll 4
      for (int part = 0; part < kParts; ++part) {
        if (part % 2 == 0) __builtin_prefetch(row + kAhead + part * kLanes);
        Halves halves;
        std::memcpy(&halves, row + part * kLanes, sizeof halves);
        sum[part] = sum[part] + weight * (Floats)(__builtin_convertvector(halves, Words) << 16);
      }
    }
#pragma GCC unroll 4
    for (int part = 0; part < kParts; ++part) {
      const Words bits = (Words)sum[part];  // one rounding at the end, as float_to_bf16 does it
      const Words nearest = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
      const Words quiet = (bits >> 16) | 0x40u;
      const Words is_nan = (Words)((bits & 0x7FFFFFFFu) > 0x7F800000u);
      const Halves rounded = __builtin_convertvector((nearest & ~is_nan) | (quiet & is_nan), Halves);
      std::memcpy(out + column + part * kLanes, &rounded, sizeof rounded);
    }
  }

  static void run(const SumRow* rows, int count, int hidden, std::uint16_t* out) {
    int column = 0;
    for (; column + 4 * kLanes <= hidden; column += 4 * kLanes) columns<4>(rows, count, column, out);
    for (; column < hidden; column += 2 * kLanes) columns<2>(rows, count, column, out);  // kHiddenMultiple is 32
  }
  using Signature = void(const SumRow*, int, int, std::uint16_t*);
};
static_assert(kHiddenMultiple % (2 * kLanes) == 0);

// sum += weight * row, for all other kinds of rows and sinks.
struct AddRow {
  static void run(const SumRow& row, int column, int count, float* sum) {
    if (row.wide) {
      const float* values = reinterpret_cast<const float*>(row.data) + column;
      for (int c = 0; c < count; ++c) sum[c] = sum[c] + row.weight * values[c];
    } else {
      const auto* values = reinterpret_cast<const std::uint16_t*>(row.data) + column;
      for (int c = 0; c < count; ++c) sum[c] = sum[c] + row.weight * bf16_to_float(values[c]);
    }
  }
  using Signature = void(const SumRow&, int, int, float*);
};

template <class Operation>
auto best() {
  static const auto function = AtLevel<Operation, typename Operation::Signature>::at(best_simd_level());
  return function;
}

#if defined(__SSE2__)
// Both 16-byte aligned; `bytes` a multiple of 64.
void stream(std::byte* to, const std::byte* from, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += 64) {
    const auto* source = reinterpret_cast<const __m128i*>(from + at);
    auto* target = reinterpret_cast<__m128i*>(to + at);
    const __m128i a = _mm_load_si128(source);
    const __m128i b = _mm_load_si128(source + 1);
    const __m128i c = _mm_load_si128(source + 2);
    const __m128i d = _mm_load_si128(source + 3);
    _mm_stream_si128(target, a);
    _mm_stream_si128(target + 1, b);
    _mm_stream_si128(target + 2, c);
    _mm_stream_si128(target + 3, d);
  }
}
#endif

}  // namespace

void sum_rows(const HostGroup&, const SumRow* rows, int count, int hidden, const RowSink& sink) {
  const bool all_bf16 = std::none_of(rows, rows + count, [](const SumRow& row) { return row.wide; });
  if (all_bf16 && sink.epilogue == nullptr && sink.dtype == DType::bf16)
    return best<SumBf16>()(rows, count, hidden, reinterpret_cast<std::uint16_t*>(sink.data));
  constexpr int kColumns = 512;
  const auto add = best<AddRow>();
  for (int column = 0; column < hidden; column += kColumns) {
    const int columns = std::min(kColumns, hidden - column);
    float sum[kColumns] = {};
    for (int i = 0; i < count; ++i) add(rows[i], column, columns, sum);
    sink.store(column, sum, columns);
  }
}

void convert_row(const HostGroup& g, const SumRow& row, int hidden, std::byte* to, DType dtype) {
  if (!row.wide && dtype == DType::bf16)
    std::memcpy(to, row.data, static_cast<std::size_t>(hidden) * sizeof(std::uint16_t));
  else
    ferry::convert_row(static_cast<const SerialGroup&>(g), row, hidden, to, dtype);
}

// A plain store first reads the line that it overwrites. In pieces, so that the message stays in the first cache.
void copy_to_rows(const HostGroup& g, std::byte* rows, std::size_t row_bytes, const std::uint32_t* row, int count,
                  const std::byte* from, std::size_t bytes) {
  std::size_t done = 0;
#if defined(__SSE2__)
  constexpr std::size_t kPiece = 1024;
  const bool aligned = ((reinterpret_cast<std::uintptr_t>(rows) | row_bytes) & 15) == 0;
  const std::size_t wide = g.past_cache && aligned ? bytes / 64 * 64 : 0;
  for (; done < wide; done += std::min(kPiece, wide - done))
    for (int i = 0; i < count; ++i)
      stream(rows + row[i] * row_bytes + done, from + done, std::min(kPiece, wide - done));
#endif
  if (done == bytes) return;
  for (int i = 0; i < count; ++i) std::memcpy(rows + row[i] * row_bytes + done, from + done, bytes - done);
}

void finish_rows(const HostGroup& g) {
#if defined(__SSE2__)
  if (g.past_cache) _mm_sfence();
#else
  static_cast<void>(g);
#endif
}

}  // namespace ferry::cpu
