// How the processes of a job find each other: rank 0 listens at an address that all were given, the others come there,
// and each ends with a connection to each.
#pragma once

#include <string>
#include <vector>

#include "net/socket.h"

namespace ferry::net {

struct Job {
  HostPort address;  // where rank 0 listens
  int rank = 0;
  int size = 1;
  std::string name;  // at most 63 characters; processes of jobs with different names do not meet
};

struct Mesh {
  std::vector<Descriptor> peers;  // by rank; none for the own one
  std::uint64_t token = 0;        // of this job, the same on all ranks and hard to guess
};

// Collective over the job. Strangers that connect are left alone; a process with a rank that is there already, or with
// another number of ranks, is refused there, with both values. Throws Error(invalid_argument) there, PeerMissing that
// names the first rank that did not come, Error(system) where rank 0 cannot listen.
Mesh join(const Job& job, const Deadline& deadline);

}  // namespace ferry::net
