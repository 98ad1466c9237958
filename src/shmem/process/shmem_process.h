// ShmemProcess: this process in an OpenSHMEM job. It owns the symmetric memory, knows where it can store to the memory
// of others, and has the thread that makes network progress while the caller computes.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "ferry/worlds/shmem_world.h"
#include "shmem/process/shmem_api.h"
#include "shmem/process/shmem_arena.h"

namespace ferry::cpu {

class ShmemProcess {
 public:
  // Throws what ShmemJob's constructor does.
  explicit ShmemProcess(const ShmemOptions& options);
  ~ShmemProcess();
  ShmemProcess(const ShmemProcess&) = delete;
  ShmemProcess& operator=(const ShmemProcess&) = delete;

  int rank() const { return started_.rank; }
  int size() const { return started_.size; }
  ShmemArena& arena() { return *arena_; }
  // The symmetric memory of `rank`, if this process can store to it; otherwise null.
  std::byte* mapped(int rank) const { return mapped_[static_cast<std::size_t>(rank)]; }

  bool maps_all(int ranks) const;
  // Keeps alive what a put may read after its owner is gone.
  void keep(std::shared_ptr<const void> read_late);

  // No rank may put any more after this call.
  bool has_ended() const { return ended_; }
  // Ends OpenSHMEM. Throws Error(system) where that takes longer.
  void end(std::chrono::milliseconds deadline);

 private:
  void move_bytes();
  void stop_moving();

  shmem::Started started_;
  std::optional<ShmemArena> arena_;
  std::vector<std::byte*> mapped_;
  std::mutex guard_;
  std::vector<std::shared_ptr<const void>> kept_;
  std::condition_variable stopped_;
  bool stopping_ = false;
  bool ended_ = false;
  std::thread mover_;
};

}  // namespace ferry::cpu
