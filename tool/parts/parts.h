// The parts of the tool that a build has or lacks, by what was found when it was configured. Each registers what it has
// at the faces that the commands use: ranks/gpus.h, ranks/job/job_starters.h,
// bench/gpu/bench_gpu.h, bench/processes/put_link.h.
#pragma once

namespace ferry::app {

// Registers every part that was linked (linked_parts.cpp.in). Once, before any command runs.
void register_parts();

void register_cuda_part();
void register_shmem_part();
void register_nvshmem_part();

}  // namespace ferry::app
