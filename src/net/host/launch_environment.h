// Reads rank, size and address of a process from the variables that launchers set.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "ferry/worlds/processes.h"

namespace ferry::net {

// A variable's value, or null.
using Environment = std::function<const char*(const char* name)>;

// process_above(), or what a test has in its place.
using ProcessAbove = std::function<std::string(const char* name)>;
inline constexpr const char* kHydraProxy = "hydra_pmi_proxy";  // starts a host's processes for MPICH's mpirun

ProcessPlace place_in(const Environment& environment, const ProcessPlace& given, const ProcessAbove& above = {});

// A process of a job in which OpenSHMEM or MPI can start.
struct LaunchedProcess {
  int rank = 0;
  int size = 1;
  int on_this_host = 1;  // processes of the job on this host; `size` if the launcher has no variable for it
};

// What Open MPI's oshrun and mpirun, or Slurm's srun with PMIx, set; empty if none of them started this process.
std::optional<LaunchedProcess> launched_in(const Environment& environment);
// In the environment of this process.
std::optional<LaunchedProcess> launched_process();

// The same for launchers in whose processes OpenSHMEM cannot start but Ferry's own worlds can: mpirun of MPICH and
// Intel MPI, and srun without PMIx.
std::optional<LaunchedProcess> launched_without_shmem_in(const Environment& environment);
std::optional<LaunchedProcess> launched_process_without_shmem();

// "node[03-07,9],other" -> "node03".
std::string first_node(const std::string& node_list);

}  // namespace ferry::net
