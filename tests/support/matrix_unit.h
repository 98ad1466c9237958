// Sums of products as the matrix units of GPUs make them, but in a random order: some products and the sum so far are
// added at a time, each cut to the last place of the largest, and so is what comes out.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <span>
#include <vector>

namespace ferry::test {

class MatrixUnit {
 public:
  // `at_once`: how many products are added to a sum at a time. Real units add 4, 8 or 16.
  explicit MatrixUnit(unsigned seed, int at_once = 4) : random_(seed), at_once_(static_cast<std::size_t>(at_once)) {}

  // a(i) * b(i) added up over i, all of them bf16 values: their products are exact.
  template <class First, class Second>
  float sum(int count, const First& a, const Second& b) {
    std::vector<int> order(static_cast<std::size_t>(count));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random_);
    std::vector<double> terms;
    double sum = 0;
    for (std::size_t begin = 0; begin < order.size(); begin += at_once_) {
      terms.assign(1, sum);
      for (std::size_t i = begin; i < std::min(begin + at_once_, order.size()); ++i)
        terms.push_back(double{a(order[i])} * double{b(order[i])});
      sum = cut_sum(terms);
    }
    return static_cast<float>(sum);
  }

 private:
  // Cuts a number to 24 bits where the first one is that of `largest`.
  static double cut(double value, double largest) {
    if (largest == 0 || !std::isfinite(largest)) return value;
    const int last_place = std::ilogb(largest) - 23;
    return std::ldexp(std::trunc(std::ldexp(value, -last_place)), last_place);
  }
  static double cut_sum(std::span<const double> terms) {
    double largest = 0, sum = 0;
    for (const double term : terms) largest = std::max(largest, std::abs(term));
    for (const double term : terms) sum += cut(term, largest);
    return cut(sum, std::abs(sum));
  }

  std::mt19937 random_;
  std::size_t at_once_;
};

}  // namespace ferry::test
