// What an exchange keeps on its device besides the symmetric memory, and the record in which a kernel reports an error
// to the host.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ferry/detail/base/order.h"
#include "ferry/detail/cuda/state/round_tag.h"
#include "ferry/detail/cuda/state/table_parts.h"
#include "ferry/detail/layout/handle_header.h"
#include "ferry/detail/layout/scale_word.h"
#include "ferry/error.h"
#include "ferry/shape.h"

namespace ferry::cuda {

// Rows for which the outputs of a dispatch had no room.
struct OverflowNote {
  std::uint32_t rows;
  bool is_padded;
  std::int64_t room;  // rows in all; padded: of an expert
};

// The tensor that has too few rows for a combine (HostRecord::has_few_rows).
inline constexpr std::uint32_t kFewRows = 1;
inline constexpr std::uint32_t kFewRowWeights = 2;  // row_topk_weights

// What is wrong with the counts of a dispatch, or its destination ranks, in one word (HostRecord::bad_counts).
struct BadCounts {
  enum Kind : std::uint32_t {
    none,
    flag,        // in_rank[at, value >> 8] is value & 255
    many_ranks,  // in_rank[at] names more than `value` ranks
    negative,    // expert_counts[at] is `value`
    differ,      // rank `at` gave ids
    replayed,    // a dispatch with a handle of a dispatch by counts was given outputs that tell of ids or counts
  };
  Kind kind;
  std::uint32_t at;  // below 2^28
  std::uint32_t value;

  FERRY_HD std::uint64_t word() const {
    return std::uint64_t{kind} << 60 | std::uint64_t{at & 0x0FFFFFFFu} << 32 | value;
  }
  static BadCounts of(std::uint64_t word) {
    return {static_cast<Kind>(word >> 60), static_cast<std::uint32_t>(word >> 32) & 0x0FFFFFFFu,
            static_cast<std::uint32_t>(word)};
  }
};

// A rank that gave a dispatch more tokens than it can take.
struct ExcessTokens {
  std::int32_t rank = -1;  // none
  std::uint32_t tokens = 0;
};

// In host memory that the device can write. A writer sets `failed` or `has_...` after the fields that it announces.
struct HostRecord {
  WaitRecord wait;
  SystemWord<std::uint32_t> failed;
  SystemWord<std::uint32_t> has_bad_id;
  std::uint32_t num_bad;   // bad ids of that dispatch
  std::int32_t bad_token;  // of one of them
  std::int32_t bad_k;
  std::int64_t bad_id;
  SystemWord<std::uint32_t> has_few_rows;  // kFewRows, kFewRowWeights
  std::uint32_t rows_given;                // of a combine
  std::uint32_t rows_laid_out;
  SystemWord<std::uint32_t> has_bad_scale;
  float bad_scale;  // the input scale of a dispatch
  SystemWord<std::uint32_t> has_other_scale;
  OtherScale other_scale;
  HandleField handle_field;  // of a handle that this rank refused: what is wrong, what it is, and what it must be
  std::int64_t handle_value;
  std::int64_t handle_limit;
  SystemWord<std::uint32_t> overflows;   // dispatches of Overflow::reported that had too little room
  OverflowNote overflow;                 // of the newest of them
  SystemWord<std::uint64_t> bad_counts;  // BadCounts: one of those of the newest dispatch by counts that had some
  SystemWord<std::uint64_t> handle_bytes_wanted;  // by a short handle that a dispatch could not leave; 0: there is none
  std::uint64_t handle_bytes_given;
  SystemWord<Epoch> refused;  // as DeviceState::refused, until the host has seen it
};

// In host memory that the device can write: what comes in the newest dispatch (count_kernel.cuh). The row starts
// follow, and where rows are by_source the first rows of all sources.
struct HostCounts {
  SystemWord<std::uint64_t> answered;  // the number of the question whose answer it holds; written last
  ExcessTokens excess;
  std::int32_t other_input = -1;  // a rank that gave counts where this one gave ids, or ids where this one gave counts
  bool is_by_counts = false;      // the dispatch, or that of its handle
};

// In device memory; zeroed, then the epochs set.
struct DeviceState {
  DeviceWord<Epoch> dispatched;    // the newest round that was sent
  DeviceWord<Epoch> extra;         // combines that took a number of their own (begin_handle_kernel.cuh)
  DeviceWord<Epoch> extra_result;  // the number of the newest combine that begin_handle_kernel came before
  DeviceWord<Epoch> extra_after;   // `dispatched` when the newest of `extra` took its number
  DeviceWord<std::uint32_t> failed;
  DeviceWord<std::uint32_t> dispatch_call;  // the host's number of the newest round's dispatch; 0: it was captured
  DeviceWord<Epoch> refused;  // a dispatch that was refused; kernels that follow do nothing (refused_dispatch.cuh)
  DeviceWord<std::uint64_t> started;  // block arrivals: blocks of all dispatch kernels that have read `dispatched`
  std::uint64_t started_before = 0;   // `started` when the newest round began
  DeviceWord<std::uint64_t> non_finite;
  DeviceWord<std::uint64_t> dropped;
  DeviceWord<std::uint64_t> dispatches;
  DeviceWord<std::uint64_t> combines;
  DeviceWord<std::uint32_t> bad_ids[2];        // by parity of the round: found by routing so far
  DeviceWord<std::uint32_t> token_counter[2];  // by parity of the round: dispatch's work queue
  DeviceWord<std::uint32_t> result_counter;    // combine's work queue
  DeviceWord<std::uint32_t> late_putters;      // blocks of a combine that have stored late weights

  // Whether a kernel that begins now must do nothing: an earlier call failed, or the newest dispatch was refused.
  FERRY_HD bool has_stopped() const {
    return load_relaxed(failed) != 0 || load_relaxed(refused) == load_relaxed(dispatched);
  }
  // The same for a kernel of a combine's second half. Where its first half came before the refused dispatch, so does
  // its result: begin_handle_kernel forgets the number of a combine when it does nothing. `is_extra`: it came before
  // this one.
  FERRY_HD bool second_half_has_stopped(bool is_extra) const {
    return has_stopped() && (load_relaxed(failed) != 0 || !is_extra || load_relaxed(extra_result) == 0);
  }
  // The same for a kernel that sends what belongs to the dispatch ahead of it: of one that is refused as of any other.
  // Blocks of a dispatch that did nothing have arrived.
  FERRY_HD bool dispatch_has_stopped() const {
    return has_stopped() && (load_relaxed(failed) != 0 || load_relaxed(started) != started_before);
  }
};

// A caller's hooks as they go into a kernel's parameter (compiled_hooks.cuh).
struct HookBytes {
  static constexpr std::size_t kMost = 128;
  alignas(16) std::byte bytes[kMost] = {};
};

// What a fabric needs, by value in a kernel's parameter. Rank, size and mask are those of the plan: what waits and
// signals has links and no plan. ExchangeState sets them from the plan, and the mask of both in one statement.
struct PeerLinks {
  int rank = 0;
  int size = 0;
  std::byte* heap[kMaxGpuRanks] = {};      // of direct ranks; null: a remote rank
  std::byte* const* more_heaps = nullptr;  // [size - kMaxGpuRanks], in device memory: of the ranks after those
  std::byte* own = nullptr;                // of this rank
  const std::uint8_t* masked = nullptr;    // by rank; null: no rank is masked
  TableParts table_parts;
  RoundTag tag;                                            // of counts and numbers of tokens
  std::size_t abort_words = 0;                             // offset of the abort words of all ranks
  std::size_t dispatching_words = 0, combining_words = 0;  // of their call words
  std::uint64_t deadline_ns = 0;
  bool backs_off = false;  // threads sleep between two polls (cuda/policy/problem.h)
  DeviceState* state = nullptr;
  HostRecord* record = nullptr;
  DeviceWord<std::uint64_t>* waited_ns = nullptr;  // [size]
  HookBytes hooks;

  FERRY_HD bool is_masked(int peer) const { return masked != nullptr && masked[peer] != 0; }
  // The word in which this rank says at a peer that it gave up.
  FERRY_HD std::size_t own_abort_word() const {
    return abort_words + static_cast<std::size_t>(rank) * sizeof(SignalWord);
  }
};

}  // namespace ferry::cuda
