// CallFormats: the formats that a dispatch may take (DispatchInput::format), and the one that the newest dispatch took.
#pragma once

#include <cstddef>
#include <vector>

#include "exchange/sizes/sizes.h"
#include "ferry/exchange.h"

namespace ferry {

class CallFormats {
 public:
  // Before anything else. The options are checked. What it keeps stays where it is.
  void set(const Shape& shape, const ExchangeOptions& options, int rank);
  int count() const { return static_cast<int>(layouts_.size()); }
  // A dispatch begins. Throws Error(invalid_argument) where there is no such format, and then changes nothing.
  void take(int format) { taken_ = index_of(format); }

  // Of the newest dispatch.
  std::size_t taken() const { return taken_; }
  const RowLayout& layout() const { return layouts_[taken_]; }

  // Throw as take does. The options have the fields of the format.
  const RowLayout& layout_in(int format) const { return layouts_[index_of(format)]; }
  const ExchangeOptions& options_in(int format) const { return options_[index_of(format)]; }

 private:
  std::size_t index_of(int format) const;

  int rank_ = 0;
  std::size_t taken_ = 0;
  std::vector<ExchangeOptions> options_;
  std::vector<RowLayout> layouts_;
};

}  // namespace ferry
