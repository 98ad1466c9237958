#include "shmem/process/shmem_api.h"

#define OMPI_SKIP_MPICXX
#include <mpi.h>
#include <shmem.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <string_view>

#include "base/byte_size.h"
#include "ferry/detail/base/order.h"
#include "shmem/process/shmem_lost_peer.h"

namespace ferry::cpu::shmem {
namespace {

constexpr const char* kHeapVariable = "SHMEM_SYMMETRIC_HEAP_SIZE";
constexpr std::size_t kOwnBytes = std::size_t{1} << 20;  // for the library's own records in its heap

// Only one thread at a time calls the library. The library's own lock spins: if the holder loses its core, a waiter
// would spin for a whole time slice.
std::mutex& library() {
  static std::mutex mutex;
  return mutex;
}
DeviceWord<std::uint64_t> calls;

}  // namespace

std::size_t default_heap_bytes(int processes_of_this_host) {
  const auto pages = static_cast<std::size_t>(std::max(sysconf(_SC_PHYS_PAGES), 1L));
  const auto page = static_cast<std::size_t>(std::max(sysconf(_SC_PAGESIZE), 1L));
  const std::size_t share = pages * page / 2 / static_cast<std::size_t>(std::max(processes_of_this_host, 1));
  return std::max(std::bit_floor(share), std::size_t{64} << 20);
}

std::size_t heap_bytes_of_environment() {
  const char* text = std::getenv(kHeapVariable);
  return text == nullptr ? 0 : bytes_of_size(text);
}

// UCX warns about settings of transports that it must not use.
bool may_use_tcp() {
  const char* const ways = std::getenv("UCX_TLS");
  if (ways == nullptr) return true;
  const std::string_view named(ways);
  const bool has_tcp = named.find("tcp") != std::string_view::npos;
  return named.starts_with('^') ? !has_tcp : has_tcp || named.find("all") != std::string_view::npos;
}

// Open MPI 4.1 ends in a crash when its own hooks into the memory functions are on ("patcher"): UCX has better ones.
void prepare_environment(std::size_t heap_bytes) {
  setenv("OMPI_MCA_memory", "^patcher", 0);
  setenv("OMPI_MCA_memheap", "ptmalloc", 0);  // one large allocation, of any size
  setenv(kHeapVariable, std::to_string(heap_bytes + kOwnBytes).c_str(), 1);
  // Over TCP a put is cut into pieces that are answered one by one: a message of 8000 columns in one.
  if (!may_use_tcp()) return;
  setenv("UCX_TCP_TX_SEG_SIZE", "16k", 0);
  setenv("UCX_TCP_RX_SEG_SIZE", "16k", 0);
}

Started start(std::size_t heap_bytes) {
  int provided = SHMEM_THREAD_SINGLE;
  shmem_init_thread(SHMEM_THREAD_MULTIPLE, &provided);
  Started started;
  started.rank = shmem_my_pe();
  started.size = shmem_n_pes();
  started.threads = provided == SHMEM_THREAD_MULTIPLE;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  started.heap = static_cast<std::byte*>(shmem_align(128, heap_bytes));
  started.heap_bytes = started.heap == nullptr ? 0 : heap_bytes;
  if (started.heap != nullptr) std::memset(started.heap, 0, std::min(heap_bytes, kZeroedBytes));
  shmem_barrier_all();
  hide_lost_peers(true);
  return started;
}

void put(std::byte* to, const void* from, std::size_t bytes, int rank) {
  const std::lock_guard lock(library());
  fetch_add_relaxed(calls, std::uint64_t{1});
  shmem_putmem_nbi(to, from, bytes, rank);
}
void fence() {
  const std::lock_guard lock(library());
  shmem_fence();
}
// OpenSHMEM has no call for progress, and Open MPI's test and fence make none. Open MPI's OpenSHMEM runs inside MPI,
// and a probe for a message that never comes makes progress in both.
void progress() {
  const std::unique_lock lock(library(), std::try_to_lock);
  if (!lock) return;  // the holder makes progress
  fetch_add_relaxed(calls, std::uint64_t{1});
  int found = 0;
  MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
}
std::uint64_t num_calls() { return load_relaxed(calls); }
std::byte* pointer(std::byte* symmetric, int rank) { return static_cast<std::byte*>(shmem_ptr(symmetric, rank)); }
void end() {
  hide_lost_peers(false);
  shmem_finalize();
}

}  // namespace ferry::cpu::shmem
