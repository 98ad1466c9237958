// One text, compiled once for each vector instruction set worth having, and chosen when the program runs.
//
// The text is plain C++ in loops that the compiler vectorises; nothing here names an instruction. Where the set of
// instructions is not known (other processors, other compilers) there is the baseline only, which is what the compiler
// was told to build for.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__)
#define FERRY_HAS_X86_LEVELS 1
#define FERRY_AVX2 [[gnu::target("avx2,fma")]]
#if defined(__clang__)
#define FERRY_AVX512 [[gnu::target("fma,avx512f,avx512bw,avx512dq,avx512vl")]]
#else
#define FERRY_AVX512 [[gnu::target("fma,avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")]]
#endif
#else
#define FERRY_HAS_X86_LEVELS 0
#endif

namespace ferry::cpu {

enum class SimdLevel { baseline, avx2, avx512 };
inline constexpr SimdLevel kSimdLevels[] = {SimdLevel::baseline, SimdLevel::avx2, SimdLevel::avx512};

const char* to_string(SimdLevel level);
bool supports(SimdLevel level);  // this machine and this build
SimdLevel best_simd_level();

// Operation is an empty type whose static run(Arguments...) does the work. `flatten` pulls all that it calls into the
// function whose instruction set is named; what stays a call would run as baseline code.
template <class Operation, class Signature>
struct AtLevel;

template <class Operation, class Result, class... Arguments>
struct AtLevel<Operation, Result(Arguments...)> {
  [[gnu::flatten]] static Result baseline(Arguments... arguments) { return Operation::run(arguments...); }
#if FERRY_HAS_X86_LEVELS
  FERRY_AVX2 [[gnu::flatten]] static Result avx2(Arguments... arguments) { return Operation::run(arguments...); }
  FERRY_AVX512 [[gnu::flatten]] static Result avx512(Arguments... arguments) { return Operation::run(arguments...); }
#else
  static Result avx2(Arguments... arguments) { return baseline(arguments...); }
  static Result avx512(Arguments... arguments) { return baseline(arguments...); }
#endif

  using Function = Result (*)(Arguments...);
  static constexpr Function at(SimdLevel level) {
    return level == SimdLevel::avx512 ? &avx512 : level == SimdLevel::avx2 ? &avx2 : &baseline;
  }
};

}  // namespace ferry::cpu
