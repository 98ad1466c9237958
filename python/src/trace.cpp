// What the exchanges of the process do, recorded. ferry._trace has the context manager over it.
#include <ferry/trace.h>
#include <nanobind/stl/string.h>

#include "python/src/base/parts.h"

namespace nb = nanobind;

namespace ferry::python {

void add_trace(nb::module_& module) {
  nb::class_<Trace>(module, "Trace")
      .def(nb::init<>())
      .def("stop", &Trace::stop)
      .def("json", &Trace::json, nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace ferry::python
