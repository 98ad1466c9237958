// How far a row may be from itself, at most, after it was encoded in a format of results and decoded.
// docs/numerics-of-combine.md derives the numbers.
#pragma once

#include <string_view>
#include <vector>

#include "ferry/token_format.h"

namespace ferry::test {

class TravelErrors {
 public:
  TravelErrors(const AnyFormat& format, int hidden);

  // `reach`: of each column the largest magnitude that it may have, [hidden].
  void find(const std::vector<double>& reach);
  double operator[](std::size_t column) const { return errors_[column]; }

 private:
  // error = own * |value| + block * (largest of its block) + row * (largest of the row) + tiny
  struct Shares {
    double own, block, row, tiny;
  };
  static Shares shares_of(std::string_view format);

  Shares shares_;
  std::size_t block_;  // columns that share a scale
  std::vector<double> errors_;
};

}  // namespace ferry::test
