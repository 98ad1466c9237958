// The loops of row_math.h, once per vector instruction set.
#include "cpu/formats/row_math.h"

#include "cpu/formats/simd.h"
#include "ferry/detail/formats/rounded.h"

namespace ferry::cpu {
namespace {

using codec::bits_of;
using codec::float_of;

float widen(std::uint16_t bf16) { return float_of(std::uint32_t{bf16} << 16); }
float widen(float value) { return value; }

template <class Element>
struct Accumulate {
  static void run(const Element* __restrict row, float weight, float* __restrict acc, int count) {
    for (int i = 0; i < count; ++i) acc[i] = codec::add_rounded(acc[i], codec::multiply_rounded(weight, widen(row[i])));
  }
  using Function = AtLevel<Accumulate, void(const Element*, float, float*, int)>;
};

struct Round {
  static void run(const float* __restrict values, std::uint16_t* __restrict out, int count) {
    for (int i = 0; i < count; ++i) out[i] = static_cast<std::uint16_t>(codec::bf16_of(bits_of(values[i])));
  }
  using Function = AtLevel<Round, void(const float*, std::uint16_t*, int)>;
};

struct Widen {
  static void run(const std::uint16_t* __restrict row, float* __restrict out, int count) {
    for (int i = 0; i < count; ++i) out[i] = widen(row[i]);
  }
  using Function = AtLevel<Widen, void(const std::uint16_t*, float*, int)>;
};

template <class Element>
struct CountNonFinite {
  static int run(const Element* values, int count) {
    int found = 0;
    for (int i = 0; i < count; ++i)
      found += (bits_of(widen(values[i])) & codec::kMagnitudeMask) >= codec::kInfinityBits ? 1 : 0;
    return found;
  }
  using Function = AtLevel<CountNonFinite, int(const Element*, int)>;
};

template <class Operation>
auto best() {
  return Operation::Function::at(best_simd_level());
}

}  // namespace

void accumulate_bf16(const std::uint16_t* row, float weight, float* acc, int count) {
  best<Accumulate<std::uint16_t>>()(row, weight, acc, count);
}
void accumulate_f32(const float* row, float weight, float* acc, int count) {
  best<Accumulate<float>>()(row, weight, acc, count);
}
void round_to_bf16(const float* values, std::uint16_t* out, int count) { best<Round>()(values, out, count); }
void widen_bf16(const std::uint16_t* row, float* out, int count) { best<Widen>()(row, out, count); }
int count_non_finite(const std::uint16_t* bf16, int count) {
  return best<CountNonFinite<std::uint16_t>>()(bf16, count);
}
int count_non_finite(const float* values, int count) { return best<CountNonFinite<float>>()(values, count); }

}  // namespace ferry::cpu
