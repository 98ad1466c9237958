// Where a process stands among those that make a world together, one process per rank. No MPI is needed: they meet at
// an address, or by a function of the caller's. What the caller leaves out is read from the launcher's environment.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

namespace ferry {

// Gathers bytes of all processes: `mine` has as many on each; the result has theirs in rank order. It is for programs
// that have a group of processes already (torch.distributed, MPI). What it throws leaves the call that makes the world.
using AllGather = std::function<std::vector<std::byte>(std::span<const std::byte> mine)>;

struct ProcessPlace {
  std::string address;  // "host:port" at which rank 0 listens; every process is given the same
  int rank = -1;        // 0 .. size-1
  int size = 0;         // processes of the world
  int local_rank = -1;  // among the processes of this host
  std::string job;      // any text of at most 63 characters; processes whose texts differ never meet
  // In place of `address`, on all ranks or on none: how the processes learn where rank 0 listens. It is called once on
  // each rank, while the world is made, and never again: exchanges are set up over connections that are made then.
  AllGather all_gather{};
  // A request, from any thread, ends the call that makes the world with Error(aborted). To the other processes this one
  // has ended then. It does not end all_gather, nor what GPUs and NVSHMEM do for a start. Later it does nothing.
  std::stop_token stop{};
};

// Fills in what `given` leaves out. Looked for, in this order:
//   rank, size, local rank   RANK, WORLD_SIZE, LOCAL_RANK (torchrun); OMPI_COMM_WORLD_RANK, .._SIZE, .._LOCAL_RANK
//                            (Open MPI); PMI_RANK, PMI_SIZE, MPI_LOCALRANKID (MPICH, Intel MPI); SLURM_PROCID,
//                            SLURM_STEP_NUM_TASKS or SLURM_NTASKS, SLURM_LOCALID (srun)
//   address                  FERRY_ADDRESS; MASTER_ADDR with the port MASTER_PORT + 1 (torch's store has MASTER_PORT
//                            itself); 127.0.0.1 where mpirun says that all processes are on this host
//                            (OMPI_COMM_WORLD_LOCAL_SIZE, MPI_LOCALNRANKS); the first node of SLURM_STEP_NODELIST
//   port of the last two     derived from the launcher's name of the job: PMIX_NAMESPACE or OMPI_MCA_ess_base_jobid
//                            (Open MPI), the process hydra_pmi_proxy that started them (MPICH, Intel MPI), the numbers
//                            of Slurm's job and step
//   job                      the same name
// Address and job are not looked for where all_gather is given. Throws Error(invalid_argument) that says what is
// missing, or which variable is no number, and where address and all_gather are both given.
ProcessPlace place_of_process(const ProcessPlace& given = {});

}  // namespace ferry
