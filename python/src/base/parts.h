// The parts of the module, each in a file of its own, in the order in which they are added to it.
#pragma once

#include <nanobind/nanobind.h>

namespace ferry::python {

void add_build_info(nanobind::module_& module);
void add_errors(nanobind::module_& module);
void add_world(nanobind::module_& module);
void add_process_world(nanobind::module_& module);
void add_options(nanobind::module_& module);
void add_layout(nanobind::module_& module);
void add_exchange(nanobind::module_& module);
void add_formats(nanobind::module_& module);
void add_trace(nanobind::module_& module);
void add_activation(nanobind::module_& module);
void add_cuda(nanobind::module_& module);
void add_transports(nanobind::module_& module);

}  // namespace ferry::python
