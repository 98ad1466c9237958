// The rules are those of why_invalid, in its order.
#include "tool/ranks/shape_names.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>
#include <utility>

#include "exchange/checks/row_order_rules.h"
#include "ferry/error.h"

namespace ferry::app {
namespace {

void require(const std::string& name, std::int64_t value, bool fits, const std::string& must) {
  if (!fits) throw Error(ErrorKind::invalid_argument, fmt::format("{} {}: must be {}", name, value, must));
}

// What the commands call an option of the library.
std::string_view option_of(std::string_view option) {
  constexpr std::array kOptions = {std::pair{"reduction exact", "--combine exact"},
                                   std::pair{"fused_shared_expert", "--shared-gate-up"}};
  for (const auto& [of_library, of_commands] : kOptions)
    if (option == of_library) return of_commands;
  return option;
}

// The most tokens whose (token, k) pairs have room beside the expert id.
std::int64_t most_tokens(Shape shape) {
  std::int64_t fits = 0;
  for (std::int64_t step = std::int64_t{1} << 30; step > 0; step /= 2) {
    shape.max_tokens = static_cast<int>(fits + step);
    if (why_invalid(shape) == nullptr) fits += step;
  }
  return fits;
}

// The most experts whose ids leave room for the entries of one token.
int most_experts(Shape shape) {
  shape.max_tokens = 1;
  int fits = shape.top_k;
  for (int step = 1 << 30; step > 0; step /= 2) {
    if (fits > std::numeric_limits<int>::max() - step) continue;
    shape.experts = fits + step;
    if (why_invalid(shape) == nullptr) fits += step;
  }
  return fits;
}

}  // namespace

void require_shape(const Shape& shape, const ShapeNames& names) {
  const std::string are = names.experts_are.empty() ? "" : " (" + names.experts_are + ")";
  require(names.experts, shape.experts, shape.experts >= 1, "at least 1");
  require(names.ranks, shape.ranks, shape.ranks >= 1 && shape.ranks <= kMaxRanks, fmt::format("1 to {}", kMaxRanks));
  require(names.ranks, shape.ranks, shape.ranks <= shape.experts,
          fmt::format("at most the number of experts, {}{}: every rank owns one or more", shape.experts, are));
  require(names.top_k, shape.top_k, shape.top_k >= 1 && shape.top_k <= std::min(kMaxTopK, shape.experts),
          shape.experts < kMaxTopK
              ? fmt::format("1 to {}, the number of experts{}: those of a token are distinct", shape.experts, are)
              : fmt::format("1 to {}", kMaxTopK));
  require(names.hidden, shape.hidden, shape.hidden >= kHiddenMultiple && shape.hidden % kHiddenMultiple == 0,
          fmt::format("a positive multiple of {}", kHiddenMultiple));
  if (most_tokens(shape) == 0)
    require(names.experts, shape.experts, false,
            fmt::format("at most {} where {} is {}", most_experts(shape), names.top_k, shape.top_k));
  require(names.tokens, shape.max_tokens, why_invalid(shape) == nullptr,
          fmt::format("1 to {}, with {} of {} experts for each", most_tokens(shape), shape.top_k, shape.experts));
}

void require_rows_fit(ExchangeOptions options, Reduction combine) {
  options.reduction = combine;  // of an exchange with either, too: its combines all are this here
  for (const RowOrderRule& rule : row_order_rules())
    if (rule.at_exchange && options.row_orders.has(rule.order) && rule.is_on(options))
      throw Error(ErrorKind::invalid_argument, fmt::format("--rows {} does not go with {}: {}", to_string(rule.order),
                                                           option_of(rule.option), rule.why));
}

}  // namespace ferry::app
