// Token formats: how a token travels and how it lies in a row. docs/formats.md has every byte.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "ferry/formats/input_row.h"
#include "ferry/formats/portable.h"
#include "ferry/formats/thread_group.h"
#include "ferry/tensor.h"

namespace ferry {

// Where dispatch and the activation kernels put the scales of a row.
enum class ScaleLayout : std::uint8_t {
  none,        // the format has no scales
  row_major,   // [row_capacity, scales per row]
  transposed,  // [scales per row, row_capacity]
  tiled,       // 5-D tiles [block, ceil(scales/4), 32, 4, 4], with scales_offsets
};
const char* to_string(ScaleLayout layout);

// What a format must offer. The object is small and trivially copyable: it is passed to kernels by value.
//   name()                  as on the command line
//   block()                 columns that share a scale; 0 without scales
//   scale_bytes()           bytes of one scale, 1 or 4; 0 without scales
//   scale_layout()          where rows keep them
//   alignment()             default first-row alignment of an expert: 1, 4, 8, 16, 32, 64 or 128
//   payload_bytes(hidden)   bytes of a row's codes, a multiple of 8
//   encode(group, row, hidden, input_scale, payload, scales)  writes payload_bytes and one scale per block in column
//                           order. All threads of the group call it. Returns the calling thread's count of non-finite
//                           blocks; a format without scales counts the row as one block. One thread of the group counts
//                           a block
//   decode(group, payload, scales, hidden, input_scale, out)  writes `hidden` float32 values
// payload is 16-byte aligned, scales aligned to scale_bytes.
template <class F>
concept TokenFormat = std::is_trivially_copyable_v<F> &&
    requires(const F& f, const SerialGroup& g, InputRow row, std::byte* out, const std::byte* in, float* values) {
  { f.name() } -> std::convertible_to<const char*>;
  { f.block() } -> std::same_as<int>;
  { f.scale_bytes() } -> std::same_as<int>;
  { f.scale_layout() } -> std::same_as<ScaleLayout>;
  { f.alignment() } -> std::same_as<int>;
  { f.payload_bytes(int{}) } -> std::same_as<std::size_t>;
  { f.encode(g, row, int{}, float{}, out, out) } -> std::same_as<int>;
  f.decode(g, in, in, int{}, float{}, values);
};

// What a format may offer besides: encoding the columns of a block from the registers of its threads. SwiGLU on a GPU
// then never stores an activated row before it is encoded, which makes it several times as fast.
//   Stored                  the type of a scale, of scale_bytes() bytes
//   encode_columns<kLanes, kColumns>(group, values, input_scale, exist)  encodes a thread's kColumns columns of a block
//                           (8 or 16). kLanes neighbouring threads share the block. All threads of the group call it.
//                           `values`: the columns, as float32 bits. `exist`: false if the columns lie behind the end of
//                           the row. Returns a struct with `words`, an array of std::uint32_t with the codes as they
//                           lie in the payload, and `scale`, the block's Stored, in each thread.
// All members are static, and block() / kColumns is a power of two up to 32. Threads compare with group.max_over.
template <class F>
concept ColumnFormat = TokenFormat<F> && requires(const SerialGroup& g, const std::uint32_t (&values)[16]) {
  typename F::Stored;
  requires sizeof(typename F::Stored) == static_cast<std::size_t>(F::scale_bytes()) && F::block() % 16 == 0;
  { F::template encode_columns<1, 16>(g, values, float{}, true).scale } -> std::convertible_to<typename F::Stored>;
  { F::template encode_columns<1, 16>(g, values, float{}, true).words[0] } -> std::convertible_to<std::uint32_t>;
};

// And where it carries results on GPUs, which are decoded as they are added, or where rows are decoded on a GPU:
//   decode_columns(payload, scales, column, input_scale, values)  the float32 values of eight columns from `column` on,
//                           a multiple of 8. A static member, as encode_columns. A block has at most 256 columns.
//                           `payload` and `scales` are of a row, or of one block of it: `column` then counts from the
//                           block's first.
template <class F>
concept DecodesColumns = TokenFormat<F> && requires(const std::byte* in, float (&values)[8]) {
  F::decode_columns(in, in, int{}, float{}, values);
};

// A format may also say whether encode and decode use input_scale:
//   static constexpr bool takes_input_scale()
// One that does not say so counts as one that does: all ranks must give the same. All formats of the library say so.
template <class F>
concept SaysInputScale = requires(const F& f) {
  { f.takes_input_scale() } -> std::same_as<bool>;
};
template <class F>
constexpr bool takes_input_scale(const F& format) {
  if constexpr (SaysInputScale<F>)
    return format.takes_input_scale();
  else
    static_assert(
        !requires { &F::takes_input_scale; }, "takes_input_scale() of a format returns bool");
  return true;
}

namespace detail {
FERRY_HD constexpr int scales_of_blocks(int block, int hidden) {  // hidden + block may be more than an int holds
  return block == 0 ? 0 : hidden / block + (hidden % block != 0 ? 1 : 0);
}
}  // namespace detail

// A format whose scales are no blocks of columns says how many there are: scales_per_row(hidden). AnyFormat does.
template <class F>
concept SaysScalesPerRow = requires(const F& f) {
  { f.scales_per_row(int{}) } -> std::same_as<int>;
};
template <class F>
FERRY_HD constexpr int scales_per_row(const F& format, int hidden) {
  if constexpr (SaysScalesPerRow<F>) {
    return format.scales_per_row(hidden);
  } else {
    static_assert(
        !requires { &F::scales_per_row; }, "scales_per_row(hidden) of a format takes an int and returns int");
    return detail::scales_of_blocks(format.block(), hidden);
  }
}
// Bytes of a message: payload, scales, up to a multiple of 16.
template <class F>
FERRY_HD constexpr std::size_t message_bytes(const F& format, int hidden) {
  const std::size_t bytes =
      format.payload_bytes(hidden) + static_cast<std::size_t>(scales_per_row(format, hidden)) * format.scale_bytes();
  return (bytes + 15) / 16 * 16;
}

// The rows of a format whose bytes nobody looks at (bytes_format).
struct BytesRow {
  std::int64_t payload_bytes = 0;                     // a positive multiple of 16, at most 2^25
  int scales_per_row = 0;                             // at most 2^20; 0: none, and the two below mean nothing
  int scale_bytes = 4;                                // of a scale: 1, 2 or 4
  ScaleLayout scale_layout = ScaleLayout::row_major;  // transposed: of 1 or 4 bytes; tiled: of 1 byte
};

// A format behind function pointers: what the CPU exchange, the command line and the tests hold. Itself a TokenFormat.
struct FormatTable {
  const char* name;
  int block;
  int scale_bytes;
  ScaleLayout scale_layout;
  int alignment;
  std::size_t (*payload_bytes)(int hidden);
  int (*encode)(InputRow row, int hidden, float input_scale, std::byte* payload, std::byte* scales);
  void (*decode)(const std::byte* payload, const std::byte* scales, int hidden, float input_scale, float* out);
  bool takes_input_scale = true;
  // Set by bytes_format alone, which checks it: nothing encodes or decodes the format, payload_bytes is not called, and
  // block is 0 though there are scales.
  const BytesRow* bytes = nullptr;
};

class AnyFormat {
 public:
  // `table` must live as long as the program (a static).
  constexpr explicit AnyFormat(const FormatTable& table) : table_(&table) {}

  const char* name() const { return table_->name; }
  int block() const { return table_->block; }
  int scale_bytes() const { return table_->scale_bytes; }
  ScaleLayout scale_layout() const { return table_->scale_layout; }
  int alignment() const { return table_->alignment; }
  bool takes_input_scale() const { return table_->takes_input_scale; }
  bool encodes() const { return table_->bytes == nullptr; }  // false: encode and decode throw Error(unsupported)
  std::size_t payload_bytes(int hidden) const {
    return encodes() ? table_->payload_bytes(hidden) : static_cast<std::size_t>(table_->bytes->payload_bytes);
  }
  int scales_per_row(int hidden) const {
    if (encodes()) return detail::scales_of_blocks(block(), hidden);
    return table_->bytes->scales_per_row * (table_->bytes->scale_bytes == 2 ? 2 : 1);
  }
  int encode(const SerialGroup&, InputRow row, int hidden, float input_scale, std::byte* payload,
             std::byte* scales) const {
    return table_->encode(row, hidden, input_scale, payload, scales);
  }
  void decode(const SerialGroup&, const std::byte* payload, const std::byte* scales, int hidden, float input_scale,
              float* out) const {
    table_->decode(payload, scales, hidden, input_scale, out);
  }
  friend bool operator==(const AnyFormat& a, const AnyFormat& b) { return a.table_ == b.table_; }

 private:
  const FormatTable* table_;
};
static_assert(TokenFormat<AnyFormat>);

namespace detail {
template <TokenFormat F>
inline constexpr FormatTable kFormatTable{
    F{}.name(),
    F{}.block(),
    F{}.scale_bytes(),
    F{}.scale_layout(),
    F{}.alignment(),
    [](int hidden) { return F{}.payload_bytes(hidden); },
    [](InputRow row, int hidden, float input_scale, std::byte* payload, std::byte* scales) {
      return F{}.encode(SerialGroup{}, row, hidden, input_scale, payload, scales);
    },
    [](const std::byte* payload, const std::byte* scales, int hidden, float input_scale, float* out) {
      F{}.decode(SerialGroup{}, payload, scales, hidden, input_scale, out);
    },
    ferry::takes_input_scale(F{})};
}  // namespace detail

// The erased form of a format type, also of one defined outside the library (docs/adding-a-format.md).
template <TokenFormat F>
constexpr AnyFormat any_format() {
  return AnyFormat(detail::kFormatTable<F>);
}

// The formats of the library (docs/formats.md) in the order of their list, with the fast CPU encoders of this machine.
std::span<const AnyFormat> all_formats();

// Also a bytes_format by its name. Throws Error(invalid_argument) that lists the names where there is no such format.
AnyFormat format_named(std::string_view name);

// A format for tokens that come encoded in a way that the library does not know (int8 with a scale for each token,
// say). Payload and scales are never looked at: they travel as they are and come out so, in every order of rows. Tokens
// are u8 [n, payload_bytes], of any hidden. Scales of 1 byte are u8, of 4 bytes f32 in name; one of 2 bytes is two
// columns of u8, row-major. An expert's first row has alignment 1 unless the exchange says otherwise. Equal rows give
// equal formats. name() has the sizes: bytes_7168, bytes_7168_56x4, bytes_7168_56x4_transposed. It is no result_format,
// and swiglu and decoding refuse it. On GPUs a message must fit into the shared memory of a block beside tables; else
// an exchange is refused with Error(unsupported) when it is made. Throws Error(invalid_argument) that names the field,
// its value and the limit. Any thread may call it.
AnyFormat bytes_format(const BytesRow& row);

// The formats in which results may travel home (ExchangeOptions::result_format): all_formats(), and f16 and f32. The
// second throws as format_named does.
std::span<const AnyFormat> result_formats();
AnyFormat result_format_named(std::string_view name);

}  // namespace ferry
