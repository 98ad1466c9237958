// World: the ranks that work together, and how they find each other. Used for set-up only; the hot path never calls it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ferry/row_order.h"
#include "ferry/shape.h"

namespace ferry {

namespace cuda {
struct Launchers;
}

struct ExchangeOptions;
struct AbortNotice;
class ExchangeMemory;
class ExchangeSteps;
class HeapMap;
class OpenExchanges;

inline constexpr std::chrono::milliseconds kDefaultDeadline{30'000};

// Which ranks take no part any more: mask[rank] is true for those. Empty: all take part.
using RankMask = std::vector<bool>;
inline bool is_masked(const RankMask& mask, int rank) {
  return static_cast<std::size_t>(rank) < mask.size() && mask[static_cast<std::size_t>(rank)];
}

// Who the ranks of a world are.
enum class WorldKind : std::uint8_t {
  threads,         // of this process, on CPUs: make_thread_worlds
  shmem,           // processes on CPUs, over OpenSHMEM: ShmemJob::make_world
  cuda,            // threads of this process with a GPU each: make_cuda_worlds, make_staged_cuda_worlds
  cuda_processes,  // processes of one host with a GPU each: make_cuda_process_world
  nvshmem,         // processes with a GPU each, on any number of hosts: make_nvshmem_world
  processes,       // of one host on CPUs, over shared memory: make_process_world
  other,           // none of the library's
};
// The name of the enumerator.
const char* to_string(WorldKind kind);
// Knows the library's own worlds only. For any world ask WorldCapabilities::gpus.
constexpr bool is_of_gpus(WorldKind kind) {
  return kind == WorldKind::cuda || kind == WorldKind::cuda_processes || kind == WorldKind::nvshmem;
}

// What the exchanges of a world can do.
struct WorldCapabilities {
  bool device_memory = false;    // calls take memory of the rank's GPU and a stream; else host memory
  bool remote_ranks = false;     // some ranks are reached by puts only, from send buffers (ferry::memory_use)
  bool skip_a2a = true;          // exchanges with ExchangeOptions::skip_a2a: all worlds of the library
  bool function_hooks = true;    // router_weight and epilogue as pointers to functions
  bool compiled_hooks = false;   // hooks that are compiled into kernels (ferry/cuda)
  bool gpus = false;             // each rank has a GPU, and kernels carry its tokens
  bool handles = true;           // dispatches leave handles, and calls are given them
  bool row_counts = true;        // outputs may hold no more rows than came, whether or not the caller asked
  bool asked_counts = true;      // Exchange::wait_for_counts; a dispatch for which it was called takes such outputs
  bool result_formats = true;    // ExchangeOptions::result_format may be another one than bf16
  bool f16_sums = true;          // combine's rows, bias and sums may be f16, not bf16 and f32 only
  bool more_outputs = true;      // the outputs that OutputList::all adds to OutputList::usual, and zero_padding
  bool overflow = true;          // DispatchInput::overflow
  bool overflow_handles = true;  // ... of dispatches that leave a handle
  bool narrow_weights = true;    // topk_weights may be bf16 or f16, not f32 only
  bool late_weights = true;      // ExchangeOptions::late_weights may be on
  bool dynamic_scales = true;    // ExchangeOptions::dynamic_scales may be on
  bool counts_dispatch = true;   // DispatchInput::in_rank may be given in place of ids
  bool returned_weights = true;  // ExchangeOptions::returns_weights may be on
  bool release = false;          // Exchange::release: memory can be given back and its addresses kept
  bool shared_memory = false;    // Exchange::take_memory: exchanges may lie in one memory
  // The orders of rows that a dispatch can be asked for, if its exchange is made for them.
  RowOrders row_orders{RowOrder::by_expert, RowOrder::by_source, RowOrder::padded, RowOrder::in_place};
};

// One rank's end of a world. Used by one thread at a time. Collective calls come in the same order on all ranks that
// the mask leaves in; each throws PeerMissing when a rank does not come within the deadline.
class World {
 public:
  World();
  virtual ~World() = default;

  virtual WorldKind kind() const = 0;
  virtual WorldCapabilities capabilities() const { return {.remote_ranks = has_remote_ranks()}; }
  virtual const char* backend() const = 0;  // as on the command line: "cpu", "processes", "shmem", "cuda", "nvshmem"
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Collective. `mine` has the same size on all ranks; `all` has size() times that and is filled in rank order (zeros
  // for masked ranks).
  virtual void all_gather(std::span<const std::byte> mine, std::span<std::byte> all, const RankMask& mask,
                          std::chrono::milliseconds deadline) = 0;

  // Collective: returns when all ranks have come.
  void barrier(const RankMask& mask = {}, std::chrono::milliseconds deadline = kDefaultDeadline);

  // This rank takes no further part in the world. Not collective; returns at once; the first time counts. From now on,
  // and at once where they wait, calls of the other ranks throw Aborted with this rank and the reason: collective calls
  // of the world and calls of its exchanges, if this rank would take part. Calls of this rank throw Aborted, too. The
  // others may go on with a new exchange whose mask names this rank.
  //   missing_rank  if this rank only gives up because that one is missing, the others name it; -1: this rank
  //   threads       any thread may call it, also while this rank is in a call
  //   reason        at most 240 characters of it reach other processes
  // Throws nothing. Ranks that cannot be told any more find out at their deadlines.
  void abort(const std::string& reason, int missing_rank = -1) noexcept;

  // Whether some ranks are reached by puts only, from send buffers. The same on all ranks.
  virtual bool has_remote_ranks() const { return false; }

  // Collective, called by Exchange's constructor with checked arguments: allocates symmetric memory as `map` says, and
  // makes what this backend runs of an exchange.
  virtual std::unique_ptr<ExchangeSteps> make_steps(const Shape& shape, const ExchangeOptions& options,
                                                    const HeapMap& map) = 0;
  // The same with kernels that the program has compiled, for a CompiledExchange. Throws Error(unsupported) on CPU
  // ranks.
  virtual std::unique_ptr<ExchangeSteps> make_compiled_steps(const Shape& shape, const ExchangeOptions& options,
                                                             const HeapMap& map, const cuda::Launchers& kernels);
  // As make_steps, in the memory of an exchange of this world (ExchangeSteps::memory) with the same mask and skip_a2a:
  // there is enough of it, and nothing is read or written there yet. Throws Error(unsupported) where
  // WorldCapabilities::shared_memory is false.
  virtual std::unique_ptr<ExchangeSteps> make_steps_in(const std::shared_ptr<ExchangeMemory>& memory,
                                                       const Shape& shape, const ExchangeOptions& options,
                                                       const HeapMap& map);

  // What a backend does of `abort`: ends the waits of other ranks in collective calls of the world, and keeps the
  // reason for abort_reason. From any thread.
  virtual void tell_aborted(const AbortNotice&) {}
  // Why that rank aborted, in its words; empty if it is not known here. Waits for it a moment at most.
  virtual std::string abort_reason(int /*rank*/) { return {}; }

 private:
  friend class Exchange;
  std::shared_ptr<OpenExchanges> open_exchanges_;
};

// `ranks` ranks as threads of this process, 1 to kMaxRanksPerNode: element r is for the thread that plays rank r. The
// elements may be used and destroyed on any thread and in any order. Throws Error(invalid_argument).
std::vector<std::unique_ptr<World>> make_thread_worlds(int ranks);

// Runs `body` once per world on a thread of its own and waits for all. If one throws, its world is aborted with the
// text of the error, so that no other rank waits for it. Rethrows that first error, not those that followed from it.
void run_worlds(std::span<const std::unique_ptr<World>> worlds, const std::function<void(World&)>& body);

// As run_worlds, on a thread world of `ranks` ranks.
void run_ranks(int ranks, const std::function<void(World&)>& body);

}  // namespace ferry
