#include "exchange/sizes/call_formats.h"

#include <fmt/core.h>

namespace ferry {

void CallFormats::set(const Shape& shape, const ExchangeOptions& options, int rank) {
  rank_ = rank;
  for (int format = 0; format < num_formats(options); ++format) {
    options_.push_back(ferry::options_in(options, format));
    layouts_.push_back(row_layout(shape, options, rank, format));
  }
}

std::size_t CallFormats::index_of(int format) const {
  if (format < 0 || format >= count())
    throw Error(ErrorKind::invalid_argument,
                fmt::format("rank {}: format is {}; it must be 0 to {}: 0 is the exchange's own, the others are "
                            "ExchangeOptions::more_formats, from 1 on",
                            rank_, format, count() - 1));
  return static_cast<std::size_t>(format);
}

}  // namespace ferry
