// The one parameter of each kernel, filled by the host.
#pragma once

#include <cstdint>

#include "ferry/detail/cuda/state/arrived_rows.h"
#include "ferry/detail/cuda/state/block_roles.h"
#include "ferry/detail/cuda/state/device_state.h"
#include "ferry/detail/cuda/state/step_times.h"
#include "ferry/detail/protocol/combine_reduce.h"
#include "ferry/detail/protocol/contracts/round.h"

namespace ferry::cuda {

struct RoutingArgs {
  HostRecord* record = nullptr;
  DeviceState* state = nullptr;
  bool is_replay = false;                     // of a handle: then entries for masked ranks do not count as dropped
  bool counts_all = false;                    // every block counts the entries of all parts
  std::uint32_t excess = 0;                   // excess_mark where this rank has more tokens than a dispatch can take
  int words = 1;                              // of 32 tokens each, whose bits fit in shared memory together
  int parts = 1;                              // of this round's table
  int parts_per_routing_block = 1;            // the last block may have fewer
  DeviceWord<Epoch>* block_counts = nullptr;  // [routing blocks, experts], each tagged with its round (I19)
};

// Counters behind Exchange::stats(): [ranks], and [ranks, local experts] for `received`.
struct StatsWords {
  DeviceWord<std::uint64_t>* messages = nullptr;
  DeviceWord<std::uint64_t>* bytes = nullptr;
  DeviceWord<std::uint64_t>* received = nullptr;
};

// What a kernel checks of a told call (I22) before the call moves anything (kernels/calls/handle_check.cuh).
struct HandleCheck {
  const std::byte* handle = nullptr;  // null: there is none to check
  HandleHeader wanted;                // what it must say; num_tokens -1: any
  Operation operation = Operation::none;
  bool wants_order = false;       // of a combine: its rows must be by_source, or must not be, as `wanted` says
  bool gives_weights = false;     // a combine by_rank gives weights, which its handle's dispatch must not have had
  bool chooses = false;           // of a combine: its reduction, so it is told without a handle, too
  bool chose_exact = false;       // of a combine: it sends each row, where others may send sums
  bool may_lack_rows = false;     // kernels behind this one heed HandleHeader::row_room
  bool may_be_by_counts = false;  // and HandleHeader::by_counts
};

struct DispatchParams {
  Plan plan;
  PeerLinks links;
  bool sends = true;     // dispatch_async and dispatch
  bool receives = true;  // dispatch_wait and dispatch
  DispatchArgs in;
  RowsOut out;
  ArrivedRows arrived;
  RoutingArgs routing;
  StatsWords stats;
  DispatchRoles roles;
  std::uint32_t block_bytes = 0;    // of shared memory, of each logical block
  int num_experts = 0;              // expert ids are below it
  std::uint32_t dispatch_call = 0;  // sends: its number (DeviceState); else the newest one must have it, unless 0
  StepTimes* step_times = nullptr;  // null: no Trace records
  HandleCheck replay;               // sends: its handle, where no kernel ahead has checked it
  const HandleHeader* aligned_by = nullptr;  // of its handle, where rows are aligned as it says
  bool tells_scale = false;                  // sends, in a format that uses an input scale (I26)
  bool compares_scales = false;              // some format of the exchange uses one
};

// Shared memory of a receiving block: row starts, and by_source the first rows of all sources.
FERRY_HD inline int place_words(const Plan& plan) { return row_start_words(plan) + plan.shape.ranks + 1; }

// After the kernel that routes (token_list_kernel.cuh).
struct TokenListParams {
  Plan plan;
  PeerLinks links;
  int num_tokens = 0;                          // of this rank
  DeviceWord<std::uint64_t>* bytes = nullptr;  // StatsWords::bytes
};

// Words behind HostCounts: row starts, the first rows of all sources, and where rows may be by_source the given counts,
// of two words each.
FERRY_HD inline int given_counts_at(const Plan& plan) { return row_start_words(plan) + plan.shape.ranks + 1; }
FERRY_HD inline int host_count_words(const Plan& plan) {
  return given_counts_at(plan) + (plan.map.has_token_lists() ? 2 * plan.local_experts() : 0);
}

// For a dispatch whose host asks what comes (count_kernel.cuh).
struct CountParams {
  Plan plan;
  PeerLinks links;
  RowOrder order = RowOrder::by_expert;
  int shared_rows = 0;  // own tokens in the fused shared expert's group
  bool by_counts = false;
  const HandleHeader* replayed = nullptr;  // of the dispatch's handle; null: there is none
  HostCounts* to = nullptr;
  std::uint32_t* to_words = nullptr;
  std::uint64_t question = 0;
};

// Around a dispatch by counts (give_counts_kernel.cuh, take_counts_kernel.cuh).
struct GiveCountsParams {
  Plan plan;
  PeerLinks links;
  const std::int32_t* counts = nullptr;   // DispatchArgs::expert_counts
  const std::uint8_t* in_rank = nullptr;  // [n, ranks]; null: the host has made ids
  int num_tokens = 0;
  std::int32_t* ids = nullptr;                 // [n, top_k]: made of in_rank
  DeviceWord<std::uint64_t>* bytes = nullptr;  // StatsWords::bytes
};
struct TakeCountsParams {
  Plan plan;
  const DeviceState* state = nullptr;
  const std::byte* heap = nullptr;  // this rank's symmetric memory
  HostRecord* record = nullptr;
  std::int32_t* counts = nullptr;          // RowsOut::counts; null: not asked for
  const HandleHeader* replayed = nullptr;  // of a handle: the dispatch is by counts if that one was
};

struct ExcessParams {
  Plan plan;
  PeerLinks links;
  std::uint32_t num_tokens = 0;
};
struct ForgetRefusedParams {
  PeerLinks links;
};

// Chunks of a source's tokens. A block counts the messages of a chunk together, a thread for each token.
FERRY_HD constexpr int message_chunks(int max_tokens) { return (max_tokens + kThreads - 1) / kThreads; }

// Behind a dispatch with extra outputs (more_rows_kernels.cuh).
struct MoreRowsParams {
  Plan plan;
  const DeviceState* state = nullptr;
  const std::byte* heap = nullptr;  // this rank's symmetric memory
  RowStarts starts;                 // that the dispatch left
  RowsOut out;
  const HandleRow* kept = nullptr;  // of a replay: [ranks, max_tokens, top_k] of its handle, for the weights
  int shared_begin = 0;             // own tokens in the fused shared expert's group
  bool writes_facts = false;        // row_weights, row_sources, row_scales or global_scales
  std::size_t global_scale_at = 0;  // in a message, where tokens have a global scale
  bool writes_padding = false;
  ArrivedRows arrived;                      // as combine will find them, but for rows without room
  HostRecord* record = nullptr;             // Overflow::reported: which learns of rows without room
  std::uint32_t* message_counts = nullptr;  // [ranks, message_chunks]
  const DeviceWord<std::uint64_t>* waited_ns = nullptr;
  const std::uint64_t* waited_before = nullptr;  // `waited_ns` before the receiving half began
};

// Before a combine whose dispatch had no room for some rows (zero_results_kernel.cuh).
struct ZeroResultsParams {
  Plan plan;
  PeerLinks links;
  ArrivedRows arrived;
  const HandleRow* kept = nullptr;             // of a combine with a handle: its rows, also those without room
  DeviceWord<std::uint64_t>* bytes = nullptr;  // StatsWords::bytes
  bool is_extra = false;                       // DeviceState::extra_result has its number
};

// Before a combine with a handle whose dispatch may have had no room for some rows (fit_rows_kernel.cuh).
struct FitRowsParams {
  Plan plan;
  const DeviceState* state = nullptr;
  const HandleHeader* header = nullptr;
  ArrivedRows from;  // of the handle
  ArrivedRows to;    // rows and starts
};

// Behind a replay that copies its handle: the room in its own outputs (fit_rows_kernel.cuh).
struct NoteRoomParams {
  const DeviceState* state = nullptr;
  HandleHeader* header = nullptr;
  std::uint32_t row_room = 0;
};

// Behind a combine (add_waits_kernel.cuh).
struct AddWaitsParams {
  const DeviceState* state = nullptr;
  const DeviceWord<std::uint64_t>* waited_ns = nullptr;  // [ranks]: PeerLinks
  const std::uint64_t* before = nullptr;                 // `waited_ns` before the results were waited for
  std::int64_t* to = nullptr;
  int ranks = 0;
  bool is_extra = false;  // DeviceState::extra_result has the number of the combine
};

// Before a dispatch with a handle where some rank is masked, and behind it (masked_sources_kernels.cuh).
struct StandInParams {
  Plan plan;
  const DeviceState* state = nullptr;
  std::byte* heap = nullptr;  // this rank's symmetric memory
  RoundTag tag;
  const std::byte* handle = nullptr;
  bool by_source = false;  // this rank's rows
};
struct PadMaskedParams {
  Plan plan;
  const DeviceState* state = nullptr;
  const std::byte* heap = nullptr;
  RowStarts starts;  // that the dispatch left
  RowsOut out;
};

struct ScalesParams {
  Plan plan;
  const DeviceState* state = nullptr;
  const std::byte* heap = nullptr;  // this rank's symmetric memory
  ScaleTensor scales;
  Divider by_strips;  // of a row's scales (scale_tiles.h)
  const std::int32_t* src_info = nullptr;
  std::size_t payload_bytes = 0;  // of a message, before its scales
  const std::uint32_t* starts = nullptr;
};

// Which code the kernel of a combine has. What a call does not need would cost small rounds time.
enum class CombineCode : std::uint8_t {
  plain,    // for a combine that follows its dispatch at once
  kept,     // for one that may have a handle, and has a number that begin_handle_kernel found
  weighed,  // for one of either kind beside whose results weights travel (I24, I25)
};

struct CombineParams {
  Plan plan;
  PeerLinks links;
  bool sends = true;
  bool receives = true;
  int num_tokens = 0;  // of this rank
  CombineArgs in;
  CombineOut out;
  ArrivedRows arrived;
  const RoutingEntry* own = nullptr;  // this rank's table in a handle; null: that of the newest routing
  bool is_extra = false;              // DeviceState::extra_result has its number
  std::uint32_t dispatch_call = 0;    // the newest dispatch must have this number (DeviceState), unless 0
  StatsWords stats;
  CombineRoles roles;
  StepTimes* step_times = nullptr;  // null: no Trace records
  CombineCode code = CombineCode::plain;
  // Of CombineCode::weighed:
  const HandleHeader* header = nullptr;  // of the handle
  bool by_source = false;                // rows of this rank are the caller's sums; where there is no handle
  int late_tokens = 0;                   // tokens of in.weights, where it has late ones
};

// Which number a combine has (I13).
enum class CombineNumber : std::uint8_t {
  of_dispatch,  // that of the newest dispatch, which no combine had yet
  own,          // one more than any before
  found,        // the device knows which of the two: graphs were replayed that the host does not know of
};

// A call with a handle, or a combine that may not follow its dispatch at once.
struct HandleCallParams {
  Plan plan;
  PeerLinks links;
  HandleCheck check;
  CombineNumber number = CombineNumber::of_dispatch;  // no other one is looked for
  bool waits = false;  // a combine with a number of its own waits until every rank has summed those before (I8)
};

// Ahead of a call that is given a short handle (short_handle_kernels.cuh).
struct LengthenParams {
  Plan plan;
  const DeviceState* state = nullptr;
  HandleHeader wanted;  // its shape
  const std::byte* from = nullptr;
  std::size_t bytes = 0;  // of `from`
  std::byte* to = nullptr;
};
// Behind a dispatch that leaves one.
struct ShortenParams {
  Plan plan;
  const DeviceState* state = nullptr;
  HostRecord* record = nullptr;
  const std::byte* from = nullptr;
  std::uint32_t* chunk_counts = nullptr;  // [ranks, message_chunks]
  std::byte* to = nullptr;
  std::size_t bytes = 0;  // of `to`
};

// A dispatch leaves a handle.
struct KeepParams {
  Plan plan;
  const DeviceState* state = nullptr;
  const std::byte* heap = nullptr;  // this rank's symmetric memory
  ArrivedRows from;
  HandleHeader header;
  bool has_old = false;  // `to` has the dispatch's own handle, and takes its weights and room
  std::byte* to = nullptr;
};

// What is left of a dispatch behind the kernel that carries its tokens. `lists` has its plan and links in any case.
struct FinishParams {
  TokenListParams lists;
  ScalesParams scales;
  KeepParams kept;
  MoreRowsParams rows;
  bool has_lists = false;
  bool has_scales = false;
  bool has_kept = false;
  bool has_rows = false;

  int parts() const { return int{has_lists} + int{has_scales} + int{has_kept} + int{has_rows}; }
};

}  // namespace ferry::cuda
