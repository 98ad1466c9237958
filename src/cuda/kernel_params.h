// The one parameter of each kernel, filled by the host.
#pragma once

#include <cstdint>

#include "cuda/device_state.h"
#include "cuda/tuning.h"
#include "protocol/combine.h"
#include "protocol/dispatch.h"

namespace ferry::cuda {

struct RankingArgs {
  HostRecord* record = nullptr;
  DeviceState* state = nullptr;
  int words = 1;                           // of 32 tokens each, whose bits fit in shared memory together
  int part_tokens = 0;                     // tokens of a part of the table; a multiple of 32
  std::uint32_t* part_counts = nullptr;    // [parts, experts]
  DeviceWord<Epoch>* part_done = nullptr;  // [parts]: the counts of that part are there
};

// What dispatch found out about every token that came, for combine: epoch or not, it lies in the same place.
struct KeptRow {
  std::uint32_t row;  // kNoRow: not an expert of this rank
  float weight;
};
inline constexpr std::uint32_t kNoRow = 0xFFFFFFFFu;
struct KeptRows {
  KeptRow* rows = nullptr;          // [ranks, tokens, top_k]
  std::uint8_t* slots = nullptr;    // [ranks, tokens]: by_rank, of this rank's partial (I9)
  std::uint32_t* tokens = nullptr;  // [ranks + 1], as RowStarts::tokens
};

// Counters behind Exchange::stats(): [ranks], and [ranks, local experts] for `received`.
struct StatsWords {
  DeviceWord<std::uint64_t>* messages = nullptr;
  DeviceWord<std::uint64_t>* bytes = nullptr;
  DeviceWord<std::uint64_t>* received = nullptr;
};

struct DispatchParams {
  Plan plan;
  PeerLinks links;
  bool sends = true;     // dispatch_async and dispatch
  bool receives = true;  // dispatch_wait and dispatch
  DispatchArgs in;
  RowsOut out;
  KeptRows kept;
  RankingArgs ranking;
  StatsWords stats;
  DispatchRoles roles;
  int num_experts = 0;  // that ids may name
};

struct CombineParams {
  Plan plan;
  PeerLinks links;
  bool sends = true;
  bool receives = true;
  int num_tokens = 0;  // of this rank
  CombineArgs in;
  CombineOut out;
  KeptRows kept;
  StatsWords stats;
  CombineRoles roles;
};

}  // namespace ferry::cuda
