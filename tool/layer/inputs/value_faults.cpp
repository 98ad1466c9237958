// One pass over the values for each question.
#include "tool/layer/inputs/value_faults.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "tool/io/bfloat16.h"
#include "tool/io/memory.h"

namespace ferry::app {
namespace {

void count(NonFinite& found, std::int64_t row, std::int64_t column, bool first_of_row) {
  ++found.values;
  if (first_of_row) ++found.rows;
  if (found.first_row >= 0) return;
  found.first_row = row;
  found.first_column = column;
}

// "--down w2.npy: nan at [3, 0, 17]", or nothing where all values are finite.
std::string in_matrix(const char* option, const std::string& path, const std::string& index, const float* values,
                      std::int64_t rows, std::int64_t columns) {
  const NonFinite found = find_non_finite(values, rows, columns);
  if (found.values == 0) return {};
  return fmt::format("{} {}: {} at [{}{}, {}]", option, path,
                     static_cast<double>(values[found.first_row * columns + found.first_column]), index,
                     found.first_row, found.first_column);
}

std::string in_expert(const ExpertWeights& expert, int hidden, const std::string& index, const std::string& gate_up,
                      const std::string& down, bool shared) {
  std::string found = in_matrix(shared ? "--shared-gate-up" : "--gate-up", gate_up, index, expert.gate_up,
                                std::int64_t{2} * expert.inter, hidden);
  if (!found.empty()) return found;
  return in_matrix(shared ? "--shared-down" : "--down", down, index, expert.down, hidden, expert.inter);
}

double norm(std::span<const float> values) {
  double sum = 0;
  for (const float value : values) sum += double{value} * double{value};
  return std::sqrt(sum);
}

}  // namespace

NonFinite find_non_finite(const float* values, std::int64_t rows, std::int64_t columns) {
  NonFinite found;
  for (std::int64_t row = 0; row < rows; ++row) {
    bool first_of_row = true;
    for (std::int64_t column = 0; column < columns; ++column) {
      if (std::isfinite(values[row * columns + column])) continue;
      count(found, row, column, first_of_row);
      first_of_row = false;
    }
  }
  return found;
}

NonFinite find_non_finite_weights(const Layer& layer) {
  NonFinite found;
  for (std::int64_t token = 0; token < layer.tokens; ++token) {
    bool first_of_row = true;
    for (int k = 0; k < layer.top_k; ++k) {
      if (layer.id(token, k) < 0 || std::isfinite(layer.weights[token * layer.top_k + k])) continue;
      count(found, token, k, first_of_row);
      first_of_row = false;
    }
  }
  return found;
}

std::string origin_of_non_finite(const Layer& layer, const LayerPaths& paths, std::int64_t token) {
  std::string found;
  const NonFinite in_token = find_non_finite(layer.x + token * layer.hidden, 1, layer.hidden);
  if (in_token.values != 0)
    return fmt::format("--tokens {}: {} at [{}, {}]", paths.tokens,
                       static_cast<double>(layer.x[token * layer.hidden + in_token.first_column]), token,
                       in_token.first_column);
  for (int k = 0; k < layer.top_k; ++k) {
    const float weight = layer.weights[token * layer.top_k + k];
    if (layer.id(token, k) >= 0 && !std::isfinite(weight))
      return fmt::format("--topk-weights {}: {} at [{}, {}]", paths.weights, static_cast<double>(weight), token, k);
  }
  for (int k = 0; k < layer.top_k && found.empty(); ++k)
    if (const auto expert = static_cast<int>(layer.id(token, k)); expert >= 0)
      found =
          in_expert(layer.expert(expert), layer.hidden, fmt::format("{}, ", expert), paths.gate_up, paths.down, false);
  if (found.empty() && layer.shared_inter != 0)
    found = in_expert(layer.shared_expert(), layer.hidden, "", paths.shared_gate_up, paths.shared_down, true);
  return found.empty() ? "its inputs are finite, so a sum or a product went beyond the largest float32" : found;
}

LossFinder::LossFinder(const AnyFormat& format, int hidden, float input_scale)
    : format_(format),
      hidden_(hidden),
      input_scale_(input_scale),
      decoded_(static_cast<std::size_t>(hidden)),
      difference_(static_cast<std::size_t>(hidden)),
      payload_(format.payload_bytes(hidden)),
      scales_(static_cast<std::size_t>(scales_per_row(format, hidden) + 1) *
                  static_cast<std::size_t>(format.scale_bytes()) +
              16) {}

void LossFinder::add(std::int64_t index, std::span<const float> row) {
  const double size = norm(row);
  if (!std::isfinite(size)) return;
  for (const float value : row) lost_.largest = std::max(lost_.largest, std::abs(double{value}));
  format_.encode(SerialGroup{}, {row.data(), DType::f32}, hidden_, input_scale_, payload_.data(), scales_.data());
  format_.decode(SerialGroup{}, payload_.data(), scales_.data(), hidden_, input_scale_, decoded_.data());
  for (std::size_t i = 0; i < row.size(); ++i) difference_[i] = row[i] - decoded_[i];
  if (norm(difference_) <= size / 2) return;  // not so where a decoded value is NaN
  if (lost_.count++ != 0) return;
  const double columns = std::sqrt(static_cast<double>(hidden_));
  lost_.first = index;
  lost_.rms = size / columns;
  lost_.rms_of_error = norm(difference_) / columns;
}

std::string LossFinder::advice() const {
  if (!format_.takes_input_scale())
    return fmt::format("they are smaller or larger than {} holds; the largest magnitude is {:.3g}", format_.name(),
                       lost_.largest);
  const double fitting = fitting_input_scale(lost_.largest);
  const bool is_tried = std::abs(input_scale_ / fitting - 1) < 0.01;
  return fmt::format(
      "--input-scale {:g} does not fit them: their largest magnitude is {:.3g}, and {:g} / that is {:.3g}; {}",
      input_scale_, lost_.largest, kLargestOfNvfp4, fitting,
      is_tried ? "no scale fits small and large ones, so take another format"
               : fmt::format("try --input-scale {:.3g}", fitting));
}

std::string LossFinder::text(const std::string& what, std::int64_t of) const {
  if (lost_.count == 0) return {};
  return fmt::format(
      "{} of {} {}s {} wrong by more than half of {} size as {}, the first is {} {}: its RMS is {:.3g}, that of its "
      "error "
      "{:.3g} ({})",
      lost_.count, of, what, lost_.count == 1 ? "is" : "are", lost_.count == 1 ? "its" : "their", format_.name(), what,
      lost_.first, lost_.rms, lost_.rms_of_error, advice());
}

LossFinder find_lost_tokens(const Layer& layer, const AnyFormat& format, float input_scale) {
  LossFinder finder(format, layer.hidden, input_scale);
  std::vector<float> row(static_cast<std::size_t>(layer.hidden));
  for (std::int64_t token = 0; token < layer.tokens; ++token) {
    round_to_bf16(layer.x + token * layer.hidden, row.data(), row.size());
    finder.add(token, row);
  }
  return finder;
}

}  // namespace ferry::app
