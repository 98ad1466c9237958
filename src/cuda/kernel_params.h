// The one parameter of each kernel, filled by the host.
#pragma once

#include <cstdint>

#include "cuda/device_state.h"
#include "protocol/combine.h"
#include "protocol/dispatch.h"

namespace ferry::cuda {

struct RankingArgs {
  HostRecord* record = nullptr;
  DeviceState* state = nullptr;
  int cached = 0;  // entries whose expert the first pass keeps in shared memory for the second
  int warps = 1;   // how many warps' counts fit in shared memory
};

// Counters behind Exchange::stats(): [ranks], and [ranks, local experts] for `received`.
struct StatsWords {
  DeviceWord<std::uint64_t>* messages = nullptr;
  DeviceWord<std::uint64_t>* bytes = nullptr;
  DeviceWord<std::uint64_t>* received = nullptr;
};

// Blocks of a dispatch: the first one ranks, the next `senders` send, all others lay arrivals out.
struct Roles {
  int senders = 1;
};

struct DispatchParams {
  Plan plan;
  PeerLinks links;
  bool sends = true;     // dispatch_async and dispatch
  bool receives = true;  // dispatch_wait and dispatch
  DispatchArgs in;
  RowsOut out;
  RowStarts starts;  // in device memory, for combine
  RankingArgs ranking;
  StatsWords stats;
  Roles roles;
  int team_threads = 128;
  int num_experts = 0;  // that ids may name
};

struct CombineParams {
  Plan plan;
  PeerLinks links;
  bool sends = true;
  bool receives = true;
  CombineArgs in;
  CombineOut out;
  RowStarts starts;
  StatsWords stats;
  int team_threads = 128;
};

}  // namespace ferry::cuda
