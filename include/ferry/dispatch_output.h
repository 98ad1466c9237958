// What a dispatch fills at a rank: its outputs, their sizes, and what is known of them before rows are written.
// docs/row-orders.md has a table of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ferry/row_order.h"
#include "ferry/tensor.h"
#include "ferry/token_format.h"

namespace ferry {

// What becomes of rows for which a rank's outputs have no room.
enum class Overflow : std::uint8_t {
  refused,   // none: outputs that are too small are refused
  reported,  // they are not written, and their results are zeros. DispatchOutput::overflow counts them, and check()
             // tells of it once
  expected,  // the same, and check() says nothing
};
const char* to_string(Overflow overflow);

// Where dispatch puts the rows; the caller owns all of it. `payload` starts at a multiple of 16 bytes. Which of these a
// dispatch fills and needs depends on DispatchInput::row_order: dispatch_outputs lists them, and docs/row-orders.md has
// a table. It needs payload and scales; with tiled scales scales_offsets, with dynamic_scales global_scales; beside
// them padded counts, by_source source_offsets. in_place needs gather alone. What may be left out (an empty Tensor) is
// not written.
struct DispatchOutput {
  Tensor payload{};  // u8 [row_capacity, bytes of a row's payload] or, for bf16, bf16 [row_capacity, hidden]
  Tensor scales{};   // in the format's layout (RowLayout::scales_shape), on GPUs tiles 16-byte aligned; bf16: none
  // These three may be left out. On GPUs a large round without src_info stores transposed and tiled scales more slowly.
  Tensor row_offsets{};  // u32 [groups + 1]: padded starts and the padded end
  Tensor expert_ids{};   // i32 [groups]: 0 .. groups-1
  Tensor src_info{};  // i32 [row_capacity, 2]: token index at its source, k; (-1, -1) in padding; k = K in shared rows
  Tensor scales_offsets{};  // u32 [groups]; tiled scales only
  // u8 [handle_bytes], or fewer with short_handles: the routing of this dispatch, for later calls; may be left out
  Tensor handle{};
  // i32 [groups]: tokens of each expert, without padding. padded: rows past them stay as they were. Others than padded
  // may leave it out
  Tensor counts{};
  // by_source, whose src_info is (token, source rank), may leave out the first two:
  Tensor row_topk_ids{};      // i32 or i64 [row_capacity, K]: local experts of a row's token, else -1; past the rows -1
  Tensor row_topk_weights{};  // f32 [row_capacity, K]: their weights, else 0
  Tensor source_offsets{};    // u32 [R + 1], with skip_a2a [2]: the first row of each source rank
  // With dynamic_scales: f32 or bf16 [row_capacity]: what the values of a row are multiplied by, bf16 rounded to
  // nearest even; 0 in padding of by_expert.
  Tensor global_scales{};
  Tensor gather{};  // in_place: i32 [row_capacity]: a row's slot (ArrivalSlots); padding: -1

  // Each of these may be left out, and costs nothing then. WorldCapabilities::more_outputs; counts of rows by_expert
  // and in_place, and source_offsets of rows that are not by_source, are of this kind, too.
  Tensor source_starts{};  // i32 [groups, R], with skip_a2a [groups, 1]: tokens of each expert from the ranks before
  // by_expert, padded, in_place: f32 [row_capacity]: the weight of a row, 1 where dispatch is given none; padding: 0
  Tensor row_weights{};
  Tensor row_sources{};  // by_expert, padded, in_place: i32 [row_capacity]: the source rank of a row; padding: -1
  // i32 [messages, 2 + K]: of each message that names an expert here its source rank, its token, and its row for each
  // k, else -1; past the messages -1. By source, then token: source_offsets is the first message of each source.
  // R * T are enough, and min(row_capacity, R * T) where overflow is refused; else those past the room are left out
  Tensor messages{};
  // The scales of a row, also beside or in place of `scales`; not in_place. [row_capacity, columns], where rows are
  // padded also [groups, expert_stride, columns], at any strides that do not overlap. Padding between groups: 0.
  //   RowLayout::scale_dtype, scales_per_row columns: as they are
  //   f32, scales_per_row columns: one-byte powers of two as numbers (fp8_block128_ue8m0, mxfp8, mxfp6_*, mxfp4)
  //   i32, ceil(scales_per_row / 4) columns: one-byte scales in groups of four, the first one lowest, 0 behind the last
  Tensor row_scales{};
  Tensor overflow{};           // i32 [1]: rows for which there was no room (DispatchInput::overflow)
  Tensor cumulative_counts{};  // i32 [groups]: `counts` is added to it
  Tensor waited_ns{};          // i64 [R], with skip_a2a [1]: how long this dispatch waited for each rank is added to it
  // Clears payload, scales and weights of padding rows: padded, past an expert's rows; by_source, past the last row.
  // Not in_place.
  bool zero_padding = false;
};

// Where messages arrive, for rows that are in_place: memory of the exchange, on the rank's device. The slot of a row,
// DispatchOutput::gather, counts the slots of all copies. Which copy a dispatch uses changes, also in a captured graph;
// the view does not. What a dispatch left in its copy is valid until this rank's next dispatch begins, in stream order;
// with 4 copies (ExchangeOptions::message_copies) until the third next.
struct ArrivalSlots {
  ConstTensor payload{};  // u8 [copies, R, T, payload_row_bytes], or bf16 [copies, R, T, hidden]; with skip_a2a R is 1
  ConstTensor scales{};   // [copies, R, T, scales_per_row], in column order, whatever the layout of rows; bf16: none
  ConstTensor global_scales{};  // with dynamic_scales: f32 [copies, R, T]
};

// What came to a rank in a dispatch, known before its rows are written. int64 values, so that sums cannot overflow.
struct RowCounts {
  std::int64_t rows = 0;                // the least row capacity: row_offsets[groups]; by_source: source_offsets[R]
  std::vector<std::int64_t> by_expert;  // [groups]: tokens of each expert, without padding
  std::vector<std::int64_t> by_source;  // [RowLayout::sources]: rows of each source rank, without padding
};

// Sizes of a rank's outputs, known before the exchange is made.
struct RowLayout {
  int groups = 0;     // local experts, one more with a fused shared expert
  int alignment = 1;  // of an expert's first row
  // The worst case, which no dispatch refuses but one with a handle of a larger alignment; less may do:
  // wait_for_counts.
  std::int64_t min_row_capacity = 0;
  std::int64_t payload_row_bytes = 0;
  DType scale_dtype = DType::none;  // f32, u8 or none
  ScaleLayout scale_layout = ScaleLayout::none;
  int scales_per_row = 0;
  int hidden = 0;
  std::int64_t handle_bytes = 0;  // of a whole handle
  std::int64_t expert_rows = 0;   // most rows of one expert: R * T; with skip_a2a T
  int sources = 0;                // ranks whose tokens come: R; with skip_a2a 1
  int top_k = 0;
  bool has_global_scales = false;  // ExchangeOptions::dynamic_scales

  // The rows of the worst case, which `payload` must hold unless the counts say less (Exchange::wait_for_counts);
  // padded: all rows at this stride, in any case. in_place has no payload: the rows of gather.
  std::int64_t least_rows(RowOrder order, std::int64_t expert_stride = 0) const;
  // Shape of the scale tensor for a row capacity; empty without scales. Where rows are padded, transposed scales lie
  // expert by expert: [groups, scales_per_row, expert_stride].
  std::vector<std::int64_t> scales_shape(std::int64_t row_capacity, RowOrder order = RowOrder::by_expert,
                                         std::int64_t expert_stride = 0) const;
  // Bytes that are enough for a short handle (ExchangeOptions::short_handles) of a dispatch of `tokens` of this rank's
  // tokens: where the host knows what came, and where it knows of no more messages and rows of experts than so many. A
  // message has one row or more, and rows by_source are messages. At most handle_bytes.
  std::int64_t short_handle_bytes(std::int64_t tokens, const RowCounts& counts) const;
  std::int64_t short_handle_bytes(std::int64_t tokens, std::int64_t messages, std::int64_t rows) const;
  // 128-row tiles of a tiled scale tensor.
  std::int64_t scale_tiles(std::int64_t row_capacity) const { return (row_capacity + 127) / 128 + groups; }
};

// One output of a dispatch, as its caller allocates it: contiguous, row-major.
struct TensorSpec {
  using Field = Tensor DispatchOutput::*;
  const char* name;                 // of the field of DispatchOutput
  Field field;                      // where the tensor goes
  DType dtype;                      // of an element
  std::vector<std::int64_t> shape;  // elements
  std::size_t alignment;            // bytes: the first element's address is a multiple, on CPUs and on GPUs
  bool is_optional;                 // a dispatch may leave it out
  std::size_t bytes() const;
};

// Which outputs a list names.
enum class OutputList : std::uint8_t {
  usual,  // what every world writes
  all,    // what may be given besides, too: to a world with handles and more_outputs
};

// All outputs that a dispatch of this layout and row order fills, in the order of DispatchOutput; what is not in the
// list (scales of bf16, scales_offsets where scales are not tiled, a handle) is left out. All of them:
//
//   DispatchOutput out;
//   for (const TensorSpec& spec : dispatch_outputs(exchange.layout(), row_capacity))
//     out.*spec.field = {allocate(spec.bytes()), spec.dtype, spec.shape};
//
// The payload is bf16 if the format has no scales and two bytes for each column; dispatch also takes u8 there. Else the
// payload is u8.
//
// row_capacity: RowLayout::least_rows, or RowCounts::rows of this dispatch. Throws Error(invalid_argument) where it is
// negative, where it or the stride is above 2147483647, the most rows that there can be, or where rows are padded and
// do not fit at their stride.
std::vector<TensorSpec> dispatch_outputs(const RowLayout& layout, std::int64_t row_capacity,
                                         RowOrder order = RowOrder::by_expert, std::int64_t expert_stride = 0,
                                         OutputList list = OutputList::usual);

}  // namespace ferry
