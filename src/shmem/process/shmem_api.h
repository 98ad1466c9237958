// All calls of OpenSHMEM that Ferry makes. After start-up only end() waits for another process. Some calls of the
// library never return once a process is stopped. So a signal is an 8-byte put after a fence, never an atomic or a
// blocking put, and Ferry calls neither quiet, nor a barrier, nor free.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ferry::cpu::shmem {

// The first bytes of the heap are zero before any process goes on: the words of the job's first bootstrap.
inline constexpr std::size_t kZeroedBytes = std::size_t{256} << 10;

struct Started {
  int rank = 0;
  int size = 0;
  bool threads = false;       // several threads may make these calls
  std::byte* heap = nullptr;  // symmetric memory; null where there is not enough
  std::size_t heap_bytes = 0;
};

// What the launcher's processes get without an option: half of this machine's memory, shared evenly, as a power of two.
std::size_t default_heap_bytes(int processes_of_this_host);

// Bytes that SHMEM_SYMMETRIC_HEAP_SIZE names ("2G", "512M"); 0 where it is not set or no such size.
std::size_t heap_bytes_of_environment();

// Sets what OpenSHMEM reads when it starts; called before start() and while no other thread reads the environment.
void prepare_environment(std::size_t heap_bytes);

// Collective: returns when all processes have come, whenever that is.
Started start(std::size_t heap_bytes);

// `to` is an address of this process's symmetric memory; the bytes go to the same offset at `rank`. Returns at once,
// and the library may read `from` at any later time.
void put(std::byte* to, const void* from, std::size_t bytes, int rank);
// Orders puts to one rank: a rank sees later puts after earlier ones.
void fence();
// Lets the network make progress, for bytes that leave and bytes that arrive.
void progress();
// How often this process has made progress. While the count grows, no other thread needs to call progress().
std::uint64_t num_calls();
// The address at which this process can store to the memory of `rank`; null where it cannot.
std::byte* pointer(std::byte* symmetric, int rank);

// Collective, and the last call: waits for all processes.
void end();

}  // namespace ferry::cpu::shmem
