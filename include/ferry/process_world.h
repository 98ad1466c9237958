// ProcessWorld: a world whose ranks are processes, of one host or of many.
#pragma once

#include "ferry/world.h"

namespace ferry {

// It also sends plain bytes from rank to rank. A program can give all ranks what one rank has read, such as weights.
class ProcessWorld : public World {
 public:
  // Whether this rank stores to that one's memory itself; all others are remote: reached through the network.
  virtual bool is_direct(int rank) const = 0;
  bool reaches_directly(int rank) const { return is_direct(rank); }  // its name in version 0.1

  // One rank sends, the other receives as many bytes. `send` returns when the receiver has taken them all. Sends
  // between two ranks arrive in the order of the calls. `deadline`: of each single wait for the other rank. Throws
  // PeerMissing. After that nothing more can be sent between the two.
  virtual void send(std::span<const std::byte> data, int to, std::chrono::milliseconds deadline = kDefaultDeadline) = 0;
  virtual void receive(std::span<std::byte> data, int from, std::chrono::milliseconds deadline = kDefaultDeadline) = 0;
};

}  // namespace ferry
