// Reads the place of a process from what launchers put into its environment.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "ferry/processes.h"

namespace ferry::net {

// A variable's value, or null.
using Environment = std::function<const char*(const char* name)>;

ProcessPlace place_in(const Environment& environment, const ProcessPlace& given);

// A process of a job in which OpenSHMEM or MPI can start.
struct LaunchedProcess {
  int rank = 0;
  int size = 1;
  int on_this_host = 1;  // processes of the job on this host; `size` where the launcher does not say
};

// What Open MPI's oshrun and mpirun, or Slurm's srun with PMIx, say; nothing where none of them started this process.
std::optional<LaunchedProcess> launched_in(const Environment& environment);
// In the environment of this process.
std::optional<LaunchedProcess> launched_process();

// "node[03-07,9],other" -> "node03".
std::string first_node(const std::string& node_list);

}  // namespace ferry::net
