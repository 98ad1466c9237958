// Checks of one tensor of a caller's, of which the checks of a call are made. Each refusal is Error(invalid_argument)
// that names the tensor, what it is, what it must be, and the rank.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "exchange/checks/validate.h"

namespace ferry {

// Throws the text with the rank before it.
[[noreturn]] void refuse_call(const CheckContext& context, const std::string& text);

void require_dtype(const CheckContext& c, const char* name, const ConstTensor& tensor,
                   std::initializer_list<DType> allowed);
// Where the tensor's owner says that it is memory of a GPU. An exchange on GPUs compares the GPU itself.
void require_host_memory(const CheckContext& c, const char* name, const ConstTensor& tensor);
void require_given(const CheckContext& c, const char* name, const ConstTensor& tensor);
// Extents must be equal; -1 in `wanted` takes any.
void require_shape(const CheckContext& c, const char* name, const ConstTensor& tensor,
                   const std::vector<std::int64_t>& wanted);
void require_contiguous(const CheckContext& c, const char* name, const ConstTensor& tensor);
// Columns side by side, rows at any stride that does not make them overlap.
void require_rows(const CheckContext& c, const char* name, const ConstTensor& tensor, int columns);
void require_aligned(const CheckContext& c, const char* name, const ConstTensor& tensor, std::size_t bytes);
// All of these: given, contiguous, aligned to its elements, of one of the dtypes and of this shape.
void require_array(const CheckContext& c, const char* name, const ConstTensor& tensor,
                   std::initializer_list<DType> allowed, const std::vector<std::int64_t>& shape);

// A tensor with axes or with memory: one that lacks the other is a mistake of its caller.
inline bool is_given(const ConstTensor& tensor) { return tensor.rank != 0 || tensor.data != nullptr; }
// A tensor that may be left out when it has no rows.
ConstTensor or_empty(const ConstTensor& tensor);

}  // namespace ferry
