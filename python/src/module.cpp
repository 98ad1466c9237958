// ferry._ferry: the public C++ interface, as thin as Python needs it. The package `ferry` is written in Python over it.
#include "python/src/base/parts.h"
#include "python/src/base/process.h"

NB_MODULE(_ferry, module) {
  using namespace ferry::python;
  // Bodies that a second Ctrl-C left to themselves keep their worlds until the process ends.
  nanobind::set_leak_warnings(false);
  watch_processes();
  add_build_info(module);
  add_errors(module);
  add_world(module);
  add_process_world(module);
  add_options(module);
  add_layout(module);
  add_exchange(module);
  add_formats(module);
  add_trace(module);
  add_activation(module);
  add_cuda(module);
  add_transports(module);
}
