// Sums of rows in vectors of a fixed width, which the compiler splits for smaller machines; copies past the cache.
// No contraction: -ffp-contract=off for the whole tree, so every machine gives the same bytes.
#include "cpu/rows/host_ops.h"

#include <algorithm>
#include <cstring>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "cpu/formats/simd.h"
#include "ferry/shape.h"

namespace ferry::cpu {
namespace {

constexpr int kLanes = 16;
constexpr int kAhead = 512;  // columns from a load to its prefetch: the rows of a token lie far apart
using Words16 = std::uint16_t __attribute__((vector_size(kLanes * 2)));
using Words = std::uint32_t __attribute__((vector_size(kLanes * 4)));
using Floats = float __attribute__((vector_size(kLanes * 4)));

// Stores past the cache. A plain store first reads the line that it overwrites.
#if defined(__SSE2__)
constexpr bool kCanStream = true;
inline void stream16(void* to, const void* from) {
  __m128i value;
  std::memcpy(&value, from, sizeof value);
  _mm_stream_si128(static_cast<__m128i*>(to), value);
}
#else
constexpr bool kCanStream = false;
inline void stream16(void* to, const void* from) { std::memcpy(to, from, 16); }
#endif

bool can_stream(const HostGroup& g, const void* to) {
  return kCanStream && g.nontemporal && (reinterpret_cast<std::uintptr_t>(to) & 15) == 0;
}

// `to` is 16-byte aligned; `bytes` a multiple of 64.
void stream(std::byte* to, const std::byte* from, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += 64)
    for (std::size_t strip = 0; strip < 64; strip += 16) stream16(to + at + strip, from + at + strip);
}

// bf16 rows to a bf16 sum: all of by_rank. The sums of kStrips * kLanes columns stay in registers.
template <bool kStream>
struct SumBf16 {
  template <int kStrips>
  static void columns(const SumRow* rows, int count, int column, std::uint16_t* out) {
    Floats sum[kStrips] = {};
    for (int i = 0; i < count; ++i) {
      const auto* row = reinterpret_cast<const std::uint16_t*>(rows[i].data) + column;
      const float weight = rows[i].weight;
#pragma GCC unroll 4
      for (int strip = 0; strip < kStrips; ++strip) {
        if (strip % 2 == 0) __builtin_prefetch(row + kAhead + strip * kLanes);
        Words16 words;
        std::memcpy(&words, row + strip * kLanes, sizeof words);
        sum[strip] = sum[strip] + weight * (Floats)(__builtin_convertvector(words, Words) << 16);
      }
    }
#pragma GCC unroll 4
    for (int strip = 0; strip < kStrips; ++strip) {
      const Words bits = (Words)sum[strip];  // one rounding at the end, as float_to_bf16 does it
      const Words nearest = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
      const Words quiet = (bits >> 16) | 0x40u;
      const Words is_nan = (Words)((bits & 0x7FFFFFFFu) > 0x7F800000u);
      const Words16 rounded = __builtin_convertvector((nearest & ~is_nan) | (quiet & is_nan), Words16);
      std::uint16_t* to = out + column + strip * kLanes;
      if constexpr (kStream) {
        stream16(to, &rounded);
        stream16(to + kLanes / 2, reinterpret_cast<const std::byte*>(&rounded) + 16);
      } else {
        std::memcpy(to, &rounded, sizeof rounded);
      }
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
    if (row.is_f32()) {
      const float* values = reinterpret_cast<const float*>(row.data) + column;
      for (int c = 0; c < count; ++c) sum[c] = sum[c] + row.weight * values[c];
    } else if (row.dtype == DType::f16) {
      for (int c = 0; c < count; ++c) sum[c] = sum[c] + row.weight * row.at(column + c);
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

}  // namespace

void HostRowOps::sum_rows(const HostGroup& g, const SumRow* rows, int count, int hidden, const RowSink& sink) const {
  const bool all_bf16 = std::all_of(rows, rows + count, [](const SumRow& row) { return row.dtype == DType::bf16; });
  if (all_bf16 && sink.epilogue == nullptr && sink.dtype == DType::bf16) {
    const auto sum = can_stream(g, sink.data) ? best<SumBf16<true>>() : best<SumBf16<false>>();
    return sum(rows, count, hidden, reinterpret_cast<std::uint16_t*>(sink.data));
  }
  constexpr int kColumns = 512;
  const auto add = best<AddRow>();
  for (int column = 0; column < hidden; column += kColumns) {
    const int columns = std::min(kColumns, hidden - column);
    float sum[kColumns] = {};
    for (int i = 0; i < count; ++i) add(rows[i], column, columns, sum);
    sink.store(column, sum, columns);
  }
}

void HostRowOps::convert_row(const HostGroup& g, const SumRow& row, int hidden, std::byte* to, DType dtype) const {
  if (row.dtype == DType::bf16 && dtype == DType::bf16)
    copy_message(g, to, row.data, static_cast<std::size_t>(hidden) * sizeof(std::uint16_t));
  else
    ferry::convert_row(static_cast<const SerialGroup&>(g), row, hidden, to, dtype);
}

void copy_message(const HostGroup& g, std::byte* to, const std::byte* from, std::size_t bytes) {
  const std::size_t streamed = can_stream(g, to) ? bytes / 64 * 64 : 0;
  stream(to, from, streamed);
  if (bytes != streamed) std::memcpy(to + streamed, from + streamed, bytes - streamed);
}

// In pieces, so that the message stays in the first cache.
void HostRowOps::copy_to_rows(const HostGroup& g, std::byte* rows, std::size_t row_bytes, const std::uint32_t* row,
                              int count, const std::byte* from, std::size_t bytes) const {
  for (int i = 0; global_scales.are_given() && i < count; ++i) {
    float scale = 0;
    std::memcpy(&scale, from + global_scale_at, sizeof scale);
    global_scales.put(row[i], scale);
  }
  constexpr std::size_t kPiece = 1024;
  for (std::size_t done = 0; done < bytes; done += kPiece)
    for (int i = 0; i < count; ++i)
      copy_message(g, rows + row[i] * row_bytes + done, from + done, std::min(kPiece, bytes - done));
}

void HostRowOps::store_scales(const HostGroup& g, const ScaleTensor& tensor, const std::byte* scales,
                              const RowStarts& starts, int shared_groups, const LocalRows& to) const {
  for (int i = 0; i < to.count; ++i) {
    const int group = to.local[i] + shared_groups;
    store_row_scales(g, tensor, scales, ScaleRow{to.row[i], starts.group[group], starts.tiles[group]});
  }
}

void HostRowOps::zero_scales(const HostGroup& g, const ScaleTensor& tensor, const ScaleRow& at) const {
  store_row_scales(g, tensor, nullptr, at);
  if (global_scales.are_given()) global_scales.put(at.row, 0.0f);
}

void HostRowOps::store_row_scales(const HostGroup& g, const ScaleTensor& tensor, const std::byte* scales,
                                  const ScaleRow& at) {
  const bool tiled = tensor.layout == ScaleLayout::tiled;
  if (!tiled && tensor.layout != ScaleLayout::row_major)
    return ferry::store_scales(static_cast<const SerialGroup&>(g), tensor, scales, at);
  const auto scale_bytes = static_cast<std::size_t>(tensor.scale_bytes);
  std::byte* to = tensor.base + static_cast<std::size_t>(scale_index(tensor, at, 0)) * scale_bytes;
  const std::size_t bytes = static_cast<std::size_t>(tensor.scales_per_row) * scale_bytes;
  if (!tiled) return scales == nullptr ? fill_zero(g, to, bytes) : copy_bytes(g, to, scales, bytes);
  const std::size_t together = kScaleTileColumns * scale_bytes;
  const std::size_t whole = scales == nullptr ? 0 : bytes / together * together;
  const std::size_t end = (bytes + together - 1) / together * together;
  for (std::size_t done = 0; done < end; done += together, to += kScaleTileRows * together) {
    const std::size_t left = done < whole ? together : scales == nullptr ? 0 : bytes - done;
    if (left == 4) {
      std::memcpy(to, scales + done, 4);  // one store: the usual case
      continue;
    }
    if (left != 0) std::memcpy(to, scales + done, left);
    std::memset(to + left, 0, together - left);
  }
}

void HostRowOps::zero_scale_tail(const HostGroup& g, const ScaleTensor& tensor, std::int64_t first_row,
                                 std::int64_t end_row, std::uint32_t scales_offset) const {
  const std::int64_t in_last_block = (end_row - first_row) % kScaleTileRows;
  if (tensor.layout != ScaleLayout::tiled || in_last_block == 0) return;
  const auto scale_bytes = static_cast<std::size_t>(tensor.scale_bytes);
  const ScaleRow start{end_row - in_last_block, first_row, scales_offset};
  const auto scales =
      static_cast<std::size_t>(kScaleTileRows) * static_cast<std::size_t>(tiled_scales_per_row(tensor.scales_per_row));
  fill_zero(g, tensor.base + static_cast<std::size_t>(scale_index(tensor, start, 0)) * scale_bytes,
            scales * scale_bytes);
}

void finish_stores(const HostGroup& g) {
#if defined(__SSE2__)
  if (g.nontemporal) _mm_sfence();
#else
  static_cast<void>(g);
#endif
}

}  // namespace ferry::cpu
