// Where a process stands among those that make a world together, one process per rank. No MPI is needed: they meet at
// an address. What the caller leaves out is read from the launcher's environment.
#pragma once

#include <string>

namespace ferry {

struct ProcessPlace {
  std::string address;  // "host:port" at which rank 0 listens; every process is given the same
  int rank = -1;        // 0 .. size-1
  int size = 0;         // processes of the world
  int local_rank = -1;  // among the processes of this host
  std::string job;      // any text of at most 63 characters; processes whose texts differ never meet
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
// Throws Error(invalid_argument) that says what is missing, or which variable is no number.
ProcessPlace place_of_process(const ProcessPlace& given = {});

}  // namespace ferry
