// Bytes that go plainly from rank to rank, each rank's in one piece: what an exchange of processes is compared with.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "ferry/worlds/process_world.h"

namespace ferry::app {

// One way: so many bytes to each rank. A token's message is the same for all ranks that get it, a result is not.
struct PutLeg {
  std::vector<std::size_t> bytes_to;  // [ranks]
  bool same_for_all = false;          // all puts read one buffer; else each rank's has its own
};

class PutLink {
 public:
  virtual ~PutLink() = default;
  // For each leg in turn: puts to all ranks at once, a fence, a signal to each, and a wait for the signals of all. So
  // when it returns every rank has all that was put to it, and no leg began before the one before it had arrived.
  // All ranks call it.
  virtual void exchange() = 0;
};

// Collective over the ranks of one of the job's worlds: as many legs on all, and the same `most_bytes`, which is the
// most that any rank puts to another in one of them. Throws Error(unsupported) for OpenSHMEM's where a build lacks it.
std::unique_ptr<PutLink> make_put_link(World& world, std::vector<PutLeg> legs, std::size_t most_bytes);

using MakePutLink = std::unique_ptr<PutLink> (*)(World& world, std::vector<PutLeg> legs, std::size_t most_bytes);
void set_put_link(MakePutLink make);  // bench/shmem has one

}  // namespace ferry::app
