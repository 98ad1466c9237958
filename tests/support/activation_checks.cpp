#include "support/activation_checks.h"

#include <algorithm>
#include <cmath>

#include "support/codec_oracle.h"

namespace ferry::test {
namespace {

constexpr double kRoundedStep = 1.0001;  // the step itself is rounded
constexpr double kLowestArgument = -87.0;

double bf16_ulp(double value) { return std::ldexp(1.0, std::max(value == 0 ? -126 : std::ilogb(value), -126) - 7); }

// How far values of about this one may be from each other.
double step_at(const ActivationCase& one, const Encoded& row, std::size_t column, float input_scale, double about) {
  if (one.format.block() == 0) return bf16_ulp(about);
  const OracleFormat& oracle = oracle_format(one.format.name());
  const auto scale_bytes = static_cast<std::size_t>(one.format.scale_bytes());
  const std::size_t block = column / static_cast<std::size_t>(one.format.block());
  const double scale = oracle_scale_value(oracle, row.scales.data() + block * scale_bytes, input_scale);
  return oracle.element.step_at(about / scale) * scale * kRoundedStep;
}

std::string place(const ActivationCase& one, std::size_t row, std::size_t column) {
  return std::string(one.format.name()) + " row " + std::to_string(row) + " column " + std::to_string(column);
}

std::string unlike_row(const ActivationCase& got, const ActivationCase& want, std::size_t row) {
  const Encoded encoded = want.encoded_row(row);
  const std::vector<float> values = got.decoded_row(row);
  const std::vector<float> others = want.decoded_row(row);
  for (std::size_t column = 0; column < values.size(); ++column) {
    const float value = values[column];
    const float other = others[column];
    if (value == other || (std::isnan(value) && std::isnan(other))) continue;
    // 0, or a NaN where it is multiplied with an infinite up
    const bool lost = want.sigmoid_argument(row, column) < kLowestArgument &&
                      (std::fabs(value) <= std::fabs(other) || std::isinf(other));
    const double larger = std::max(std::fabs(value), std::fabs(other));
    if (lost || std::fabs(value - other) <= step_at(want, encoded, column, want.input_scale(row), larger)) continue;
    return place(want, row, column) + " is " + std::to_string(value) + ", not about " + std::to_string(other);
  }
  return {};
}

// float32 scales differ by units of the last place; other ones by a step, and rarely.
bool are_unlike(const AnyFormat& format, const std::uint8_t* got, const std::uint8_t* want) {
  if (format.scale_bytes() != 4) return *got != *want;
  float a;
  float b;
  std::memcpy(&a, got, 4);
  std::memcpy(&b, want, 4);
  return !(std::isnan(a) && std::isnan(b)) && !(std::fabs(a - b) <= std::fabs(b) * 0x1p-19f);
}

std::string unlike_scales(const ActivationCase& got, const ActivationCase& want) {
  const auto bytes = static_cast<std::size_t>(want.format.scale_bytes());
  const auto per_row = static_cast<std::size_t>(scales_per_row(want.format, want.shape_.inter));
  const auto* const ours = reinterpret_cast<const std::uint8_t*>(got.scales.data());
  const auto* const theirs = reinterpret_cast<const std::uint8_t*>(want.scales.data());
  std::vector<bool> owned(want.scales.size() * 4, false);
  std::size_t unlike = 0;
  for (std::size_t row = 0; row < want.rows(); ++row)
    for (std::size_t s = 0; s < per_row; ++s) {
      const std::size_t at = want.scale_index(row, s) * bytes;
      for (std::size_t byte = 0; byte < bytes; ++byte) owned[at + byte] = true;
      unlike += are_unlike(want.format, ours + at, theirs + at) ? 1 : 0;
    }
  if (unlike > want.rows() * per_row / 256) return std::to_string(unlike) + " scales differ";
  for (std::size_t i = 0; i < owned.size(); ++i)
    if (!owned[i] && ours[i] != theirs[i]) return "scale byte " + std::to_string(i) + ", which no row owns, differs";
  return {};
}

}  // namespace

std::string first_far_from_oracle(const ActivationCase& one) {
  for (std::size_t row = 0; row < one.rows(); ++row) {
    const Encoded encoded = one.encoded_row(row);
    const std::vector<float> got = one.decoded_row(row);
    for (std::size_t column = 0; column < got.size(); ++column) {
      const double want = one.oracle(row, column);
      if (std::fabs(got[column] - want) <= step_at(one, encoded, column, one.input_scale(row), want)) continue;
      return place(one, row, column) + " is " + std::to_string(got[column]) + ", not about " + std::to_string(want);
    }
  }
  return {};
}

std::string first_unlike(const ActivationCase& got, const ActivationCase& want) {
  const std::size_t owned = want.rows() * want.format.payload_bytes(want.shape_.inter);
  const auto* const ours = reinterpret_cast<const std::uint8_t*>(got.payload.data());
  const auto* const theirs = reinterpret_cast<const std::uint8_t*>(want.payload.data());
  std::size_t unlike = 0;
  for (std::size_t i = 0; i < want.payload.size() * 2; ++i) {
    if (ours[i] == theirs[i]) continue;
    if (i >= owned) return "payload byte " + std::to_string(i) + ", behind the last row, differs";
    ++unlike;
  }
  for (std::size_t row = 0; row < want.rows(); ++row)
    if (std::string found = unlike_row(got, want, row); !found.empty()) return found;
  if (want.format.block() != 0)
    if (std::string found = unlike_scales(got, want); !found.empty()) return found;
  return unlike > owned / 100 ? std::to_string(unlike) + " of " + std::to_string(owned) + " bytes differ" : "";
}

}  // namespace ferry::test
