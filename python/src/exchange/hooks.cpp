#include "python/src/exchange/hooks.h"

#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "python/src/base/values.h"

namespace nb = nanobind;

namespace ferry::python {
namespace {

// Ferry calls it without the GIL, from any of its threads.
class WithGil {
 public:
  WithGil() {
    if (!gil_) throw std::runtime_error("Python ends");
  }

 private:
  nb::gil_scoped_acquire gil_;
};

// The context of these two is the function.
float weigh_in_python(void* context, int token, int k) {
  const WithGil gil;
  const nb::object weight = nb::handle(static_cast<PyObject*>(context))(token, k);
  float value = 0.0f;
  if (!PyBool_Check(weight.ptr()) && nb::try_cast(weight, value)) return value;
  const std::string call = "router_weight(" + std::to_string(token) + ", " + std::to_string(k) + ")";
  refuse_type(call.c_str(), weight, kNumber);
}

// Python gets a copy: what it keeps must not become memory of the next token.
void end_in_python(void* context, int token, int column, const float* values, int count) {
  const WithGil gil;
  nb::ndarray<nb::numpy, const float, nb::ndim<1>> sums(values, {static_cast<std::size_t>(count)}, nb::handle());
  nb::handle(static_cast<PyObject*>(context))(token, column, sums.cast(nb::rv_policy::copy));
}

template <class Hook>
Hook hook_of(nb::handle given, decltype(Hook::function) of_python) {
  if (!PyTuple_CheckExact(given.ptr())) return {of_python, given.ptr()};
  const auto address = nb::cast<std::uintptr_t>(given[0]), context = nb::cast<std::uintptr_t>(given[1]);
  // NOLINTNEXTLINE(performance-no-int-to-ptr): Python has addresses as numbers
  return {reinterpret_cast<decltype(Hook::function)>(address), reinterpret_cast<void*>(context)};
}

}  // namespace

RouterWeight router_weight_of(nb::handle given) { return hook_of<RouterWeight>(given, weigh_in_python); }
Epilogue epilogue_of(nb::handle given) { return hook_of<Epilogue>(given, end_in_python); }

}  // namespace ferry::python
