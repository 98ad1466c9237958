// What this build has in it.
#include <nanobind/stl/string.h>

#include "python/src/base/parts.h"
#include "python/src/cuda/cuda_parts.h"

namespace nb = nanobind;

namespace ferry::python {
namespace {

nb::dict build_info() {
  nb::dict info;
  info["version"] = FERRY_PYTHON_VERSION;
  info["command"] = FERRY_PYTHON_HAS_COMMAND != 0;
  const CudaBuild cuda = cuda_build();
  info["cuda"] = *cuda.toolkit == 0 ? nb::object(nb::none()) : nb::object(nb::str(cuda.toolkit));
  info["cuda_architectures"] = cuda.architectures;
  return info;
}

}  // namespace

void add_build_info(nb::module_& module) {
  module.attr("version") = FERRY_PYTHON_VERSION;
  module.def("build_info", &build_info);
}

}  // namespace ferry::python
