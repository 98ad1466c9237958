// Policies in words, for tests and for whoever looks at one.
#pragma once

#include <ostream>

#include "ferry/detail/cuda/state/block_roles.h"

namespace ferry::cuda {

inline std::ostream& operator<<(std::ostream& out, const DispatchPolicy& p) {
  const DispatchRoles& r = p.roles;
  out << p.blocks << " blocks" << (p.blocks_per_cta == 2 ? " in pairs" : "") << ": " << r.routing_blocks << " route"
      << (r.counts_apart ? " (1 counts)" : "") << ", " << r.senders << " send x " << r.send_team_threads
      << (r.stores ? " by stores" : "");
  if (r.receive_teams > 0)
    out << ", " << r.receive_teams << " teams receive x " << r.receive_team_threads
        << (r.routing_blocks_receive ? ", routing blocks too" : "");
  if (r.triggers_at_start) out << ", triggers at start";
  return out << (p.pdl ? "" : ", no pdl");
}
inline std::ostream& operator<<(std::ostream& out, const CombinePolicy& p) {
  const CombineRoles& r = p.roles;
  return out << p.blocks << " blocks: " << r.senders << " send x " << r.send_team_threads << ", from block "
             << r.first_receiver << " receive x " << r.receive_team_threads << (r.in_place ? ", in place" : "")
             << (r.prefetches ? ", prefetches" : "") << (r.pipelined ? ", pipelined" : "")
             << (r.copies_rows ? ", copies rows" : "") << (r.triggers_late ? ", triggers late" : "")
             << (p.pdl ? "" : ", no pdl");
}

}  // namespace ferry::cuda
