// Checks of a handle before anything moves: of its tensor, and, where it is host memory, of all that is in it.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

#include "exchange/checks/validate.h"
#include "exchange/sizes/sizes.h"
#include "ferry/detail/protocol/contracts/handle.h"

namespace ferry {

// What a handle says of its dispatch.
struct HandleFacts {
  int num_tokens = 0;          // of this rank
  std::uint32_t num_rows = 0;  // row_offsets[groups]
  Epoch routing = 0;           // number of its routing, the same on all ranks
  int alignment = 1;
  TokenRange shared{0, 0};
  RowChoice rows{};
  bool has_weights = false;             // its dispatch was given weights
  std::uint32_t row_room = UINT32_MAX;  // rows that its outputs had room for
  bool by_counts = false;               // its dispatch was given counts in place of ids
};

// How a check refuses a handle: the text is made as fmt makes it.
[[noreturn]] void refuse_handle_as(const CheckContext& context, const std::string& why);
template <class... Args>
[[noreturn]] void refuse_handle(const CheckContext& context, fmt::format_string<Args...> format, Args&&... args) {
  refuse_handle_as(context, fmt::format(format, std::forward<Args>(args)...));
}

// The tensor `name` as memory of a handle, whole or short; null where it is not given.
std::byte* check_handle_tensor(const CheckContext& context, const char* name, const ConstTensor& tensor);

// A dispatch with a handle: its rows must fit the outputs.
void check_replay_output(const CheckContext& context, const RowsOut& out, const HandleFacts& facts);

// A dispatch with a handle must lay its rows out as the handle's dispatch did, and rows begin where this exchange
// aligns them. Known before tokens leave, in halves too. `asked`: what the call says.
void check_replayed_order(const CheckContext& context, const RowChoice& asked, const HandleFacts& facts);

// The header that a dispatch of this exchange writes.
HandleHeader handle_header(int rank, const Shape& shape, const ExchangeOptions& options, const HandleFacts& facts);

// Throws as check_handle, by what the header of a whole handle says.
void check_handle_header(const CheckContext& context, const HandleHeader& header);

// Which backend left the handle. Handles of rows by_source differ: a CPU rank keeps the rows of a token's experts, from
// which its token lists follow. A GPU keeps the one row of each token, which combine reads.
enum class HandleOf : std::uint8_t { cpu, gpu };

// Throws Error(invalid_argument) that names the field, the value and the limit, unless `handle` is one of a dispatch of
// this rank for this shape. Host memory; `plan` is the exchange's.
HandleFacts check_handle(const CheckContext& context, const Plan& plan, const std::byte* handle,
                         HandleOf of = HandleOf::cpu);

}  // namespace ferry
