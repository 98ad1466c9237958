// The baseline: the same exchange as a user would write it with MPI. Each (token, k) is packed as a row, MPI_Alltoallv
// carries the rows, they are unpacked into expert order; back the same way, with the weighted sum at home. Always bf16.
#pragma once

#include <string>

#include "tool/bench/base/bench_case.h"

namespace ferry::app {

struct BaselineMeasurement {
  BenchSamples samples;
  std::string library;
  int processes = 0;
};

// Throws Error(unsupported), saying what to install, where this build or this machine has no MPI.
void require_baseline();

// Seconds after which the processes count as stuck: more where more iterations are asked for.
double baseline_deadline(const BenchEffort& effort);

// Runs `bench-mpi-worker` of this very binary in one process per rank under mpirun.
BaselineMeasurement measure_baseline(const BenchCase& bench);

// What each of those processes does: measures, and prints one line of JSON from rank 0.
void run_mpi_worker(const BenchCase& bench);

}  // namespace ferry::app
