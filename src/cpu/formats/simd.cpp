// Which vector instruction sets this machine has.
#include "cpu/formats/simd.h"

namespace ferry::cpu {

const char* to_string(SimdLevel level) {
  switch (level) {
    case SimdLevel::baseline:
      return "baseline";
    case SimdLevel::avx2:
      return "avx2";
    case SimdLevel::avx512:
      return "avx512";
  }
  return "unknown";
}

bool supports(SimdLevel level) {
#if FERRY_HAS_X86_LEVELS
  switch (level) {
    case SimdLevel::baseline:
      return true;
    case SimdLevel::avx2:
      return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
    case SimdLevel::avx512:
      return __builtin_cpu_supports("fma") != 0 && __builtin_cpu_supports("avx512f") != 0 &&
             __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512dq") != 0 &&
             __builtin_cpu_supports("avx512vl") != 0;
  }
#endif
  return level == SimdLevel::baseline;
}

SimdLevel best_simd_level() {
  static const SimdLevel best = supports(SimdLevel::avx512) ? SimdLevel::avx512
                                : supports(SimdLevel::avx2) ? SimdLevel::avx2
                                                            : SimdLevel::baseline;
  return best;
}

}  // namespace ferry::cpu
