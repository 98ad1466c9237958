// DescriptorChannel: sends file descriptors between the processes of one host. Shared memory is opened by a descriptor,
// whose number means nothing in another process. The channel uses Unix datagram sockets with names that only the job
// knows.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "ferry/world.h"
#include "net/socket/socket.h"

namespace ferry::net {

class DescriptorChannel {
 public:
  // `token`: the same on all ranks of the job (Bootstrap::token).
  DescriptorChannel(int rank, int size, std::uint64_t token);

  // Sends `mine` to every rank that the mask does not name, and returns theirs by rank; this rank's own entry is empty.
  // Collective. A barrier must come before, so that every channel exists. `call` tells calls apart and is the same on
  // all ranks. Throws PeerMissing that names the first rank whose descriptor did not come, or that takes none;
  // Error(system) if one cannot be sent or kept. While it waits for a rank it calls `look` with that rank now and
  // then, which may throw.
  std::vector<Descriptor> all_to_all(const Descriptor& mine, std::uint64_t call, const RankMask& mask,
                                     std::chrono::milliseconds deadline, const std::function<void(int)>& look = {});

 private:
  struct Note;
  int try_send(int peer, const Descriptor& descriptor, const Note& note) const;
  bool receive_one(std::uint64_t call, std::vector<Descriptor>& descriptors);

  int rank_;
  int size_;
  std::uint64_t token_;
  Descriptor socket_;
  struct Ahead {
    std::uint64_t call;
    int rank;
    Descriptor descriptor;
  };
  std::vector<Ahead> ahead_;  // of calls that this rank has not reached
};

}  // namespace ferry::net
