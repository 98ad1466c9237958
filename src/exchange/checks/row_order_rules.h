// Which orders of rows do not go with which options: one list, which the checks and a test walk. Whatever is not in it
// works together.
#pragma once

#include <span>

#include "exchange/checks/validate.h"
#include "ferry/exchange.h"

namespace ferry {

struct RowOrderRule {
  RowOrder order;
  const char* option;  // as ExchangeOptions has it
  bool (*is_on)(const ExchangeOptions& options);
  bool at_exchange;  // refused when the exchange is made for the order, else when a dispatch asks for it
  const char* why;
};
std::span<const RowOrderRule> row_order_rules();

// Throws Error(invalid_argument) where ExchangeOptions::row_orders does not fit the other options.
void require_valid_orders(const ExchangeOptions& options);

// The order and the stride of one dispatch. Throws Error(invalid_argument).
RowChoice check_row_order(const CheckContext& context, const DispatchInput& in);

}  // namespace ferry
