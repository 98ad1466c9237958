// What started this process: the launchers that Ferry knows tell every process its number and how many there are.
#pragma once

#include <optional>

namespace ferry {

struct LaunchedProcess {
  int rank = 0;
  int size = 1;
  int on_this_host = 1;  // processes of the job on this host; `size` where the launcher does not say
};

// From the environment of Open MPI's oshrun and mpirun, or of Slurm's srun with PMIx; nothing where neither is there.
std::optional<LaunchedProcess> launched_process();

}  // namespace ferry
