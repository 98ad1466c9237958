#include "support/codec_oracle.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>

namespace ferry::test {
namespace {

std::uint32_t raw(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return bits;
}

const OracleElement kE4m3{4, 3, 0x7e, 0x7f};
const OracleElement kE2m1{2, 1, 0x7, -1};
const OracleElement kE2m3{2, 3, 0x1f, -1};
const OracleElement kE3m2{3, 2, 0x1f, -1};

// The largest element is 2^emax times something below 2.
int emax_of(const OracleElement& element) { return std::ilogb(element.value(element.max_code)); }

struct ChosenScale {
  std::vector<std::uint8_t> stored;
  float multiplier;
};

std::vector<std::uint8_t> bytes_of(float value) {
  std::vector<std::uint8_t> bytes(4);
  std::memcpy(bytes.data(), &value, 4);
  return bytes;
}

std::uint8_t ceil_byte(float amax) {
  if (amax == 0) return 0;
  int e = -127;
  while (std::ldexp(448.0, e) < static_cast<double>(amax)) ++e;
  return static_cast<std::uint8_t>(e + 127);
}

ChosenScale choose(const OracleFormat& format, float amax, float input_scale) {
  const auto power = [](int byte) { return static_cast<float>(std::ldexp(1.0, 127 - byte)); };
  const float floored = amax > 1e-4f ? amax : 1e-4f;
  switch (format.scale) {
    case OracleScale::float32: {
      const float scale = floored / 448.0f;
      return {bytes_of(scale), 448.0f / floored};
    }
    case OracleScale::e8m0_ceil:
      return {{ceil_byte(amax)}, power(ceil_byte(amax))};
    case OracleScale::e8m0_ceil_floor:
      return {{ceil_byte(floored)}, power(ceil_byte(floored))};
    case OracleScale::e8m0_even: {
      const std::uint32_t half = 1u << (22 - format.element.mantissa_bits);
      const int field = static_cast<int>(((raw(amax) + half) >> 23) & 255u);
      const int byte = field > emax_of(format.element) ? field - emax_of(format.element) : 0;
      return {{static_cast<std::uint8_t>(byte)}, power(byte)};
    }
    case OracleScale::two_level: {
      const float scaled = input_scale * amax;
      const float sixth = scaled / 6.0f;
      const int code = kE4m3.nearest(sixth);
      const auto value = static_cast<float>(kE4m3.value(code));
      return {{static_cast<std::uint8_t>(code)}, value == 0 ? 0.0f : input_scale / value};
    }
    case OracleScale::none:
      break;
  }
  throw std::logic_error("no scale");
}

std::vector<std::uint8_t> nan_scale(const OracleFormat& format) {
  if (format.scale == OracleScale::float32) return {0x00, 0x00, 0xc0, 0x7f};
  if (format.scale == OracleScale::two_level) return {0x7f};
  return {255};
}

std::size_t scale_bytes(const OracleFormat& format) { return nan_scale(format).size(); }

void put_code(std::vector<std::uint8_t>& payload, std::size_t column, int bits, int code) {
  for (int bit = 0; bit < bits; ++bit) {
    const std::size_t at = column * static_cast<std::size_t>(bits) + static_cast<std::size_t>(bit);
    if ((code >> bit & 1) != 0) payload[at / 8] = static_cast<std::uint8_t>(payload[at / 8] | 1 << at % 8);
  }
}

int get_code(const std::vector<std::uint8_t>& payload, std::size_t column, int bits) {
  int code = 0;
  for (int bit = 0; bit < bits; ++bit) {
    const std::size_t at = column * static_cast<std::size_t>(bits) + static_cast<std::size_t>(bit);
    code |= (payload[at / 8] >> at % 8 & 1) << bit;
  }
  return code;
}

}  // namespace

double OracleElement::value(int code) const {
  const int sign_bit = 1 << (bits() - 1);
  const int magnitude = code & (sign_bit - 1);
  if (magnitude == nan_code) return std::numeric_limits<double>::quiet_NaN();
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int field = magnitude >> mantissa_bits;
  const double fraction = std::ldexp(magnitude & ((1 << mantissa_bits) - 1), -mantissa_bits);
  const double value = field == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, field - bias);
  return (code & sign_bit) != 0 ? -value : value;
}

OracleElement::OracleElement(int exponent, int mantissa, int largest, int nan)
    : exponent_bits(exponent), mantissa_bits(mantissa), max_code(largest), nan_code(nan) {
  for (int code = 0; code <= max_code; ++code) grid.push_back(value(code));
}

int OracleElement::nearest(float value) const {
  const double magnitude = std::fabs(static_cast<double>(value));
  const auto above = std::lower_bound(grid.begin(), grid.end(), magnitude);
  auto code = static_cast<int>(above - grid.begin());
  if (above == grid.end()) {
    code = max_code;
  } else if (code > 0) {
    const double to_lower = magnitude - *(above - 1);
    const double to_upper = *above - magnitude;
    if (to_lower < to_upper || (to_lower == to_upper && code % 2 != 0)) --code;
  }
  return code | (std::signbit(value) ? 1 << (bits() - 1) : 0);
}

double OracleElement::step_at(double value) const {
  const auto above = std::lower_bound(grid.begin() + 1, grid.end() - 1, std::fabs(value));
  return *above - *(above - 1);
}

const std::vector<OracleFormat>& oracle_formats() {
  static const std::vector<OracleFormat> formats{{"fp8_block128", 128, kE4m3, OracleScale::float32},
                                                 {"fp8_block128_ue8m0", 128, kE4m3, OracleScale::e8m0_ceil_floor},
                                                 {"mxfp8", 32, kE4m3, OracleScale::e8m0_ceil},
                                                 {"mxfp6_e2m3", 32, kE2m3, OracleScale::e8m0_even},
                                                 {"mxfp6_e3m2", 32, kE3m2, OracleScale::e8m0_even},
                                                 {"mxfp4", 32, kE2m1, OracleScale::e8m0_even},
                                                 {"nvfp4", 16, kE2m1, OracleScale::two_level}};
  return formats;
}

const OracleFormat& oracle_format(std::string_view name) {
  for (const OracleFormat& format : oracle_formats())
    if (format.name == name) return format;
  throw std::logic_error("no oracle for " + std::string(name));
}

OracleRow oracle_encode(const OracleFormat& format, const std::vector<float>& row, float input_scale) {
  OracleRow out;
  const auto bits = static_cast<std::size_t>(format.element.bits());
  out.payload.assign(row.size() * bits / 8, 0);
  for (std::size_t begin = 0; begin < row.size(); begin += static_cast<std::size_t>(format.block)) {
    const std::size_t end = std::min(row.size(), begin + static_cast<std::size_t>(format.block));
    float amax = 0;
    bool finite = true;
    for (std::size_t column = begin; column < end; ++column) {
      finite = finite && std::isfinite(row[column]);
      amax = std::fmax(amax, std::fabs(row[column]));
    }
    if (!finite) {
      ++out.non_finite;
      for (const std::uint8_t byte : nan_scale(format)) out.scales.push_back(byte);
      continue;
    }
    const ChosenScale scale = choose(format, amax, input_scale);
    out.scales.insert(out.scales.end(), scale.stored.begin(), scale.stored.end());
    for (std::size_t column = begin; column < end; ++column) {
      const float scaled = row[column] * scale.multiplier;
      put_code(out.payload, column, static_cast<int>(bits), format.element.nearest(scaled));
    }
  }
  return out;
}

double oracle_scale_value(const OracleFormat& format, const std::uint8_t* stored, float input_scale) {
  if (format.scale == OracleScale::float32) {
    float value;
    std::memcpy(&value, stored, 4);
    return value;
  }
  if (format.scale == OracleScale::two_level) return kE4m3.value(*stored) / input_scale;
  return *stored == 255 ? std::numeric_limits<double>::quiet_NaN() : std::ldexp(1.0, *stored - 127);
}

std::vector<float> oracle_decode(const OracleFormat& format, const OracleRow& row, int hidden, float input_scale) {
  std::vector<float> values;
  for (std::size_t column = 0; column < static_cast<std::size_t>(hidden); ++column) {
    const auto code = static_cast<float>(format.element.value(get_code(row.payload, column, format.element.bits())));
    const std::uint8_t* stored =
        row.scales.data() + column / static_cast<std::size_t>(format.block) * scale_bytes(format);
    if (format.scale == OracleScale::two_level) {
      const float scaled = code * static_cast<float>(kE4m3.value(*stored));
      values.push_back(scaled / input_scale);
    } else {
      values.push_back(code * static_cast<float>(oracle_scale_value(format, stored, input_scale)));
    }
  }
  return values;
}

float f16_value(std::uint16_t bits) {
  const int field = bits >> 10 & 31;
  const int mantissa = bits & 1023;
  double value = field == 0    ? std::ldexp(mantissa, -24)
                 : field == 31 ? std::numeric_limits<double>::infinity()
                               : std::ldexp(1024 + mantissa, field - 25);
  if (field == 31 && mantissa != 0) value = std::numeric_limits<double>::quiet_NaN();
  return static_cast<float>((bits & 0x8000) != 0 ? -value : value);
}

// The nearer of the two bf16 values around a finite value; halfway, the even one.
std::uint16_t bf16_nearest(float value) {
  const std::uint32_t low = raw(value) >> 16;
  const auto of = [](std::uint32_t bits) {
    float wide;
    bits <<= 16;
    std::memcpy(&wide, &bits, 4);
    return static_cast<double>(wide);
  };
  const double exact = value;
  const double top = std::isinf(of(low + 1)) ? std::copysign(std::ldexp(1.0, 128), exact) : of(low + 1);
  const double below = std::fabs(exact - of(low));
  const double above = std::fabs(top - exact);
  const bool take_low = below < above || (below == above && low % 2 == 0);
  return static_cast<std::uint16_t>(take_low ? low : low + 1);
}

}  // namespace ferry::test
