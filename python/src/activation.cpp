// SwiGLU on rows of dispatches, on the host or on a GPU: where they lie.
#include <ferry/exchange.h>
#include <ferry/rows/activation.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/src/arrays/arrays.h"
#include "python/src/base/parts.h"
#include "python/src/base/values.h"
#include "python/src/cuda/cuda_parts.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace ferry::python {
namespace {

SwigluOptions options_of(const nb::object& clamp, bool interleaved, bool tiled_scales) {
  SwigluOptions options{.interleaved = interleaved, .tiled_scales = tiled_scales};
  if (!clamp.is_none()) {
    options.clamped = true;
    const auto [alpha, limit] = value_as<std::pair<float, float>>("clamp", clamp, "(alpha, limit), two numbers");
    options.alpha = alpha;
    options.limit = limit;
  }
  return options;
}

// `inputs` and `outputs` by the names of SwigluInput and SwigluOutput; `clamp` is (alpha, limit) or None.
void run_swiglu(const std::string& format, const nb::dict& inputs, const nb::dict& outputs, const nb::object& clamp,
                bool interleaved, bool tiled_scales, std::uintptr_t stream) {
  Arrays arrays;
  const auto read = [&](const char* name) {
    return inputs.contains(name) ? arrays.read(inputs[name], name) : ConstTensor{};
  };
  const auto fill = [&](const char* name) {
    return outputs.contains(name) ? arrays.fill(outputs[name], name) : Tensor{};
  };
  const SwigluInput in{.rows = read("rows"),
                       .row_offsets = read("row_offsets"),
                       .scales_offsets = read("scales_offsets"),
                       .input_scales = read("input_scales")};
  const SwigluOutput out{.payload = fill("payload"), .scales = fill("scales")};
  const SwigluOptions options = options_of(clamp, interleaved, tiled_scales);
  const AnyFormat activated = format_named(format);
  const nb::gil_scoped_release without_gil;
  if (in.rows.device.kind == Device::Kind::cuda)
    swiglu_on_gpu(activated, in, out, options, stream);
  else
    swiglu(activated, in, out, options);
}

// Shape of the scales of activated rows; empty where the format has none.
std::vector<std::int64_t> scales_shape(const std::string& format, int inter, std::int64_t row_capacity, int groups,
                                       bool tiled_scales) {
  const AnyFormat activated = format_named(format);
  RowLayout layout;
  layout.groups = groups;
  layout.hidden = inter;
  layout.scales_per_row = scales_per_row(activated, inter);
  layout.scale_layout = tiled_scales ? ScaleLayout::tiled : activated.scale_layout();
  return layout.scales_shape(row_capacity);
}

}  // namespace

void add_activation(nb::module_& module) {
  module.def("swiglu", &run_swiglu, "format"_a, "inputs"_a, "outputs"_a, "clamp"_a.none(), "interleaved"_a,
             "tiled_scales"_a, "stream"_a);
  module.def("swiglu_scales_shape", &scales_shape, "format"_a, "inter"_a, "row_capacity"_a, "groups"_a,
             "tiled_scales"_a);
}

}  // namespace ferry::python
