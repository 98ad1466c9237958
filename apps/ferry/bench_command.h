// `ferry bench`: measures the exchange, the wire under it and, with --baseline, the same exchange written
// with MPI. It never checks results; the tests do that.
#pragma once

#include <CLI/CLI.hpp>

namespace ferry::app {

// Adds `bench` and the hidden `bench-mpi-worker`, which `bench --baseline` starts under mpirun. The callbacks
// throw ferry::Error, as the other commands do.
void add_bench_command(CLI::App& app);

}  // namespace ferry::app
