#include "conformance/oracle/travel_errors.h"

#include <fmt/core.h>

#include <algorithm>
#include <span>

#include "ferry/error.h"

namespace ferry::test {

TravelErrors::TravelErrors(const AnyFormat& format, int hidden)
    : shares_(shares_of(format.name())),
      block_(static_cast<std::size_t>(format.block() > 0 ? format.block() : hidden)),
      errors_(static_cast<std::size_t>(hidden)) {}

TravelErrors::Shares TravelErrors::shares_of(std::string_view format) {
  struct Known {
    std::string_view format;
    Shares shares;
  };
  static constexpr Known kKnown[] = {{"f32", {0, 0, 0, 0}},
                                     {"f16", {0x1p-11, 0, 0, 0x1p-25}},
                                     {"bf16", {0x1p-8, 0, 0, 0x1p-134}},
                                     {"fp8_block128", {0, 0x1p-4, 0, 0x1p-32}},
                                     {"fp8_block128_ue8m0", {0, 0x1p-4, 0, 0x1p-32}},
                                     {"mxfp8", {0, 0x1p-4, 0, 0x1p-126}},
                                     {"mxfp6_e2m3", {0, 0x1p-4, 0, 0x1p-126}},
                                     {"mxfp6_e3m2", {0, 0x1p-3, 0, 0x1p-126}},
                                     {"mxfp4", {0, 0.34, 0, 0x1p-126}},
                                     {"nvfp4", {0, 0.34, 0x1p-17, 0x1p-126}}};
  for (const Known& known : kKnown)
    if (known.format == format) return known.shares;
  throw Error(ErrorKind::unsupported, fmt::format("no bound is known for results in {}", format));
}

void TravelErrors::find(const std::vector<double>& reach) {
  const double row = *std::max_element(reach.begin(), reach.end());
  for (std::size_t begin = 0; begin < reach.size(); begin += block_) {
    const auto columns = std::span(reach).subspan(begin, std::min(block_, reach.size() - begin));
    const double block = *std::max_element(columns.begin(), columns.end());
    for (std::size_t i = 0; i < columns.size(); ++i)
      errors_[begin + i] = shares_.own * columns[i] + shares_.block * block + shares_.row * row + shares_.tiny;
  }
}

}  // namespace ferry::test
