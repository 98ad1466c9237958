// How the processes of a job connect: rank 0 listens at an address that all of them know, and the others connect to it.
// At the end each process has a connection to each other one.
#pragma once

#include <exception>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "net/socket/socket.h"

namespace ferry::net {

struct Job {
  HostPort address;  // where rank 0 listens
  int rank = 0;
  int size = 1;
  std::string name;  // at most 63 characters; processes of jobs with different names do not meet
  // Where else rank 0 may be reached, and, at rank 0, what listens. Only a job whose address came by all_gather has
  // them (bootstrap_address.h).
  std::vector<HostPort> other_addresses{};
  std::shared_ptr<Listener> listener{};
  std::stop_token stop{};  // ProcessPlace::stop
};

struct Mesh {
  std::vector<Descriptor> peers;  // by rank; empty for this rank
  std::uint64_t token = 0;        // of this job, the same on all ranks and hard to guess
  // -1: all peers are here. Else the rank that is missing, or one that ended while others had not connected here yet:
  // what it said before it ended can be read from its connection.
  int missing = -1;
  std::exception_ptr error{};  // what this rank found out itself; null: `missing` ended
};

// Collective over the job. Connections from outside of the job are ignored. A process whose rank is taken, or that has
// another number of ranks, is refused: it throws Error(invalid_argument) with both values. Throws PeerMissing that
// names the first missing rank. The ranks that came share the earliest of their deadlines; each counts from when rank 0
// hears of it. Throws Error(system) if rank 0 cannot listen, Error(aborted) where the deadline was stopped: to the
// others this process has ended then.
Mesh join(const Job& job, const Deadline& deadline);

}  // namespace ferry::net
