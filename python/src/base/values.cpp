#include "python/src/base/values.h"

#include <cmath>
#include <sstream>

namespace nb = nanobind;

namespace ferry::python {

void refuse_type(const char* argument, nb::handle given, const char* must_be) {
  throw nb::type_error((std::string(argument) + " is " + nb::repr(given).c_str() + "; it must be " + must_be).c_str());
}

std::chrono::milliseconds deadline_of(const char* argument, const std::optional<double>& seconds) {
  if (!seconds) return std::chrono::milliseconds{0};
  constexpr double most = 24 * 3600;
  if (!(*seconds > 0) || *seconds > most) {
    std::ostringstream text;
    text << argument << " is " << *seconds << " s; it must be above 0 and at most " << most;
    throw Error(ErrorKind::invalid_argument, text.str());
  }
  return std::chrono::milliseconds{static_cast<std::int64_t>(std::ceil(*seconds * 1000))};
}

std::chrono::milliseconds deadline_of(const char* argument, nb::handle seconds) {
  std::optional<double> number;
  if (!seconds.is_none()) number = value_as<double>(argument, seconds, "a number of seconds");
  return deadline_of(argument, number);
}

RankMask mask_of(const nb::iterable& ranks, int size) {
  RankMask mask;
  for (const nb::handle item : ranks) {
    const int rank = whole_as<int>("a rank of the mask", item);
    if (rank < 0 || rank >= size)
      throw Error(ErrorKind::invalid_argument,
                  "the mask names rank " + std::to_string(rank) + "; the ranks are 0 to " + std::to_string(size - 1));
    mask.resize(static_cast<std::size_t>(size));
    mask[static_cast<std::size_t>(rank)] = true;
  }
  return mask;
}

RowOrder row_order_named(std::string_view name) {
  return value_named("row_order", name,
                     std::array{RowOrder::by_expert, RowOrder::by_source, RowOrder::padded, RowOrder::in_place});
}

std::vector<std::string> names_of(RowOrders orders) {
  std::vector<std::string> names;
  for (int order = 0; order < kRowOrders; ++order)
    if (orders.has(static_cast<RowOrder>(order))) names.emplace_back(to_string(static_cast<RowOrder>(order)));
  return names;
}

}  // namespace ferry::python
