// Checks of what a caller hands to an exchange, all made before anything moves, and its translation for the protocol.
// Every refusal is Error(invalid_argument) that names the call, the argument, the value, the limit and the rank.
#pragma once

#include "exchange/calls/call_order.h"
#include "ferry/detail/protocol/combine_reduce.h"
#include "ferry/detail/protocol/contracts/round.h"
#include "ferry/exchange.h"

namespace ferry {

// What the checks need to know of an exchange.
struct CheckContext {
  int rank;
  const Shape& shape;  // as the caller gave it
  const ExchangeOptions& options;
  const RowLayout& layout;
  bool takes_host_memory = true;  // else memory of the rank's GPU
  bool learns_counts = false;     // what came is known before a row is written (WorldCapabilities::row_counts)
  bool takes_f16 = true;          // rows, bias and sums may be f16 (WorldCapabilities::f16_sums)
  bool more_outputs = true;       // WorldCapabilities::more_outputs
  bool narrow_weights = true;     // WorldCapabilities::narrow_weights
  int shared_rows = 0;            // outputs: rows that the fused shared expert has of the tokens of the call
};

// Shapes, dtypes and strides; not the ids themselves, which on a GPU are on the device. Where all ranks will be told of
// too many tokens, only the number of tokens is looked at, and nothing but it is in what comes back.
DispatchArgs check_dispatch_input(const CheckContext& context, const DispatchInput& in);

// The value that `input_scale` points to, 1 where it is null. Host memory.
float check_input_scale(const CheckContext& context, const float* input_scale);

// Every id is in [-1, experts) and no token names an expert twice. Host memory.
void check_topk_ids(const CheckContext& context, const DispatchArgs& args);

// Outputs belong to the order of rows and have the right dtypes and shapes. They hold the worst case, unless the counts
// will say what they must hold, or rows may overflow. (validate_rows.cpp)
RowsOut check_dispatch_output(const CheckContext& context, const DispatchOutput& out, const RowChoice& choice = {},
                              Overflow overflow = Overflow::refused);
// The part of it that WorldCapabilities::more_outputs names. `rows` has all else. (validate_more_outputs.cpp)
void check_more_outputs(const CheckContext& context, const DispatchOutput& out, RowsOut& rows);
// Throws Error(unsupported) where one of them is given and the exchange does not write it.
void require_no_more_outputs(const CheckContext& context, const DispatchOutput& out, RowOrder order);

// When it is known that `rows` rows came.
void check_row_capacity(const CheckContext& context, const RowsOut& out, RowOrder order, std::int64_t rows);

// Checks the argument of Exchange::add_to_mask.
void check_added_mask(const CheckContext& context, const RankMask& mask);
// `num_tokens` is what this round dispatched, `num_rows` its row_offsets[groups].
CombineArgs check_combine_input(const CheckContext& context, const CombineInput& in, int num_tokens,
                                std::uint32_t num_rows);
// by_rank: weights of a combine are ones that it can use. `ticket` says what its dispatch was. (validate_weights.cpp)
// Where combines choose their reduction, the mark of the call says which it is (call_word.h).
void take_reduction(const CheckContext& context, const CombineArgs& args, Ticket& ticket);
void check_late_weights(const CheckContext& context, const CombineInput& in, const CombineArgs& args,
                        const Ticket& ticket);
// Weights that go home, which it adds to `args`; and where they come.
void check_row_weights(const CheckContext& context, const CombineInput& in, const Ticket& ticket,
                       std::uint32_t num_rows, CombineArgs& args);
float* check_returned_weights(const CheckContext& context, const CombineOutput& out, int num_tokens);
// Where the waiting times of a combine go; null: not asked for.
std::int64_t* check_combine_waits(const CheckContext& context, const CombineOutput& out);
// `sent` is what the sending half of this combine was given.
CombineOut check_combine_output(const CheckContext& context, const CombineOutput& out, const CombineArgs& sent,
                                int num_tokens);

// One row of the caller's src_info against the routing of the round.
void check_src_info_row(const CheckContext& context, const std::int32_t* src_info, std::uint32_t row, int source,
                        int source_tokens, int token, int k);
// The same where rows are by_source.
void check_source_info_row(const CheckContext& context, const std::int32_t* src_info, std::uint32_t row, int source,
                           int token);

}  // namespace ferry
