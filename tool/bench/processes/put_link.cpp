#include "tool/bench/processes/put_link.h"

#include <utility>

#include "cpu/fabric/process_memory.h"
#include "ferry/error.h"
#include "tool/bench/processes/put_legs.h"
#include "tool/ranks/job/job_starters.h"

namespace ferry::app {
namespace {

MakePutLink& registered() {
  static MakePutLink make = nullptr;
  return make;
}

// Processes of one host, which map each other's memory: nothing is put otherwise.
class MappedMemory {
 public:
  MappedMemory(int rank, cpu::Heaps heaps) : rank_(rank), heaps_(std::move(heaps)) {}
  int rank() const { return rank_; }
  std::byte* local(std::size_t offset) const { return pointer(rank_, offset); }
  std::byte* pointer(int peer, std::size_t offset) const {
    return heaps_[static_cast<std::size_t>(peer)]->data() + offset;
  }
  void put(int, std::size_t, const std::byte*, std::size_t) {}
  void fence() {}
  void signal(int, std::size_t, Epoch) {}
  cpu::HostPacer make_pacer() const { return cpu::HostPacer(kDefaultDeadline); }

 private:
  int rank_;
  cpu::Heaps heaps_;
};

}  // namespace

void set_put_link(MakePutLink make) { registered() = make; }

std::unique_ptr<PutLink> make_put_link(World& world, std::vector<PutLeg> legs, std::size_t most_bytes) {
  if (world.kind() == WorldKind::processes)
    return std::make_unique<PutLegs<MappedMemory>>(
        world.size(), std::move(legs), most_bytes, [&](std::size_t bytes, std::size_t) {
          return MappedMemory(world.rank(), cpu::share_process_memory(world, bytes, kDefaultDeadline));
        });
  if (registered() == nullptr) throw Error(ErrorKind::unsupported, shmem_starter().why_missing());
  return registered()(world, std::move(legs), most_bytes);
}

}  // namespace ferry::app
