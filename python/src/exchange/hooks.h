// Functions that calls of an exchange call back: of Python, with the GIL, or compiled ones, without it.
#pragma once

#include <nanobind/nanobind.h>

namespace ferry::python {

// As DispatchInput and CombineInput have it.
struct RouterWeight {
  float (*function)(void* context, int token, int k);
  void* context;
};
// As CombineOutput has it.
struct Epilogue {
  void (*function)(void* context, int token, int column, const float* values, int count);
  void* context;
};

// `given`: a function of Python, or of a compiled one a tuple of its address, that of its context, and what keeps both
// alive. Whoever made the call keeps `given`, as long as it keeps the arrays of the call. A function of Python that
// raises throws nanobind's exceptions, which may be destroyed without the GIL.
RouterWeight router_weight_of(nanobind::handle given);
Epilogue epilogue_of(nanobind::handle given);

}  // namespace ferry::python
