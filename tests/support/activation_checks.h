// What a swiglu call may give: near its float64 oracle, and, on a GPU, near what the CPU gives.
#pragma once

#include <string>

#include "support/activation_case.h"

namespace ferry::test {

// The first value of a case that is too far from its oracle: bf16 more than one ulp, an encoded one more than one step
// of the element's grid at the block's scale. Empty where none is.
std::string first_far_from_oracle(const ActivationCase& one);

// What two runs of one case differ in beyond what a few units of the last place of float32 explain: a value by more
// than a step, more than one byte of a hundred, a byte that no row owns. Empty where nothing does. Where exp(-x) of a
// value's sigmoid is no normal float32, `got` may be nearer to 0.
std::string first_unlike(const ActivationCase& got, const ActivationCase& want);

}  // namespace ferry::test
