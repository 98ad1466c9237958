// What a call on rows refuses of one tensor. `call` and `name` are those of the call and of the argument, for the text.
#pragma once

#include <string>

#include "ferry/tensor.h"

namespace ferry::activation {

// Throws Error(invalid_argument): the call, and why it is refused.
[[noreturn]] void refuse_call(const char* call, const std::string& why);

// Given, contiguous, aligned to its elements, of the dtype and the shape of `expected`, which has no data. Throws
// Error(invalid_argument).
void require_tensor(const char* call, const char* name, const ConstTensor& tensor, const ConstTensor& expected);

// On a GPU threads load and store 16 bytes at a time. Throws Error(invalid_argument).
void require_vector_start(const char* call, const char* name, const ConstTensor& tensor);

}  // namespace ferry::activation
