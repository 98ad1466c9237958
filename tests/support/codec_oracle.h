// The token formats once more, written to be obviously right: tables of values, searches and ldexp, one column after
// the other. Shares no code with the library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ferry::test {

struct OracleElement {
  int exponent_bits;
  int mantissa_bits;
  int max_code;              // of the largest finite value
  int nan_code;              // -1: none
  std::vector<double> grid;  // the values of codes 0 .. max_code

  OracleElement(int exponent, int mantissa, int largest, int nan);

  int bits() const { return 1 + exponent_bits + mantissa_bits; }
  double value(int code) const;        // sign included
  int nearest(float value) const;      // saturating, ties to the even code
  double step_at(double value) const;  // distance between neighbours in the grid around |value|
};

enum class OracleScale { none, float32, e8m0_ceil, e8m0_ceil_floor, e8m0_even, two_level };

struct OracleFormat {
  std::string name;
  int block;
  OracleElement element;
  OracleScale scale;
};

const std::vector<OracleFormat>& oracle_formats();  // without bf16
const OracleFormat& oracle_format(std::string_view name);

struct OracleRow {
  std::vector<std::uint8_t> payload;
  std::vector<std::uint8_t> scales;
  int non_finite = 0;
};

OracleRow oracle_encode(const OracleFormat& format, const std::vector<float>& row, float input_scale);
std::vector<float> oracle_decode(const OracleFormat& format, const OracleRow& row, int hidden, float input_scale);
// What one step of the stored scale stands for: a code's value times this is the column's value.
double oracle_scale_value(const OracleFormat& format, const std::uint8_t* stored, float input_scale);

float f16_value(std::uint16_t bits);
std::uint16_t bf16_nearest(float value);

}  // namespace ferry::test
