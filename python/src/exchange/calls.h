// The arguments of dispatch and combine out of dictionaries, by the names of the fields of C++.
#pragma once

#include <ferry/error.h>
#include <ferry/exchange.h>
#include <nanobind/nanobind.h>

#include <optional>

#include "python/src/arrays/arrays.h"

namespace ferry::python {

// What a call reads and fills, while it runs: the arrays themselves are of whoever called. Made with the GIL.
struct DispatchArguments {
  // `device`: where the arrays of the exchange lie. input_scale is a number, or an array of one there.
  DispatchArguments(const nanobind::dict& given, Device device);
  DispatchInput in{};
  std::optional<float> input_scale;
  Arrays arrays;
  nanobind::object router_weight;
};

struct OutputArguments {
  OutputArguments(const nanobind::dict& given);
  DispatchOutput out{};
  Arrays arrays;
};

struct CombineArguments {
  CombineArguments(const nanobind::dict& given);
  CombineInput in{};
  Arrays arrays;
  nanobind::object router_weight;
};

struct SumArguments {
  SumArguments(const nanobind::dict& given);
  CombineOutput out{};
  Arrays arrays;
  nanobind::object epilogue;
};

// In a handler of what a combine threw: throws it again, with an output by the name of its argument in Python.
// `reads_weights`: it was given topk_weights to read, too, which keep that name.
[[noreturn]] void throw_by_arguments(const Error& error, bool reads_weights);

}  // namespace ferry::python
