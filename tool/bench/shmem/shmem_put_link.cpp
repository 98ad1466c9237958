// Plain puts over OpenSHMEM.
#include "tool/bench/shmem/shmem_put_link.h"

#include "shmem/process/shmem_waits.h"
#include "shmem/shmem_memory.h"
#include "tool/bench/processes/put_legs.h"

namespace ferry::app {
namespace {

class ShmemMemory {
 public:
  explicit ShmemMemory(std::unique_ptr<cpu::SymmetricMemory> memory) : memory_(std::move(memory)) {}
  int rank() const { return memory_->rank(); }
  std::byte* local(std::size_t offset) const { return memory_->local(offset); }
  std::byte* pointer(int peer, std::size_t offset) const { return memory_->pointer(peer, offset); }
  void put(int peer, std::size_t offset, const std::byte* from, std::size_t bytes) {
    memory_->put(peer, offset, from, bytes);
  }
  void fence() { cpu::shmem::fence(); }
  void signal(int peer, std::size_t word, Epoch value) { memory_->signal(peer, word, value); }
  cpu::ShmemPacer make_pacer() const { return cpu::ShmemPacer(kDefaultDeadline); }

 private:
  std::unique_ptr<cpu::SymmetricMemory> memory_;
};

}  // namespace

std::unique_ptr<PutLink> make_shmem_put_link(World& world, std::vector<PutLeg> legs, std::size_t most_bytes) {
  return std::make_unique<PutLegs<ShmemMemory>>(
      world.size(), std::move(legs), most_bytes, [&](std::size_t bytes, std::size_t zeroed) {
        return ShmemMemory(cpu::share_memory(world, bytes, zeroed, kDefaultDeadline));
      });
}

}  // namespace ferry::app
