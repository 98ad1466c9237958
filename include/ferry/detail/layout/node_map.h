// NodeMap: the nodes of a world. A node is a run of consecutive ranks; if the ranks do not divide evenly, the first
// nodes have one rank more. Nodes are logical: ranks of different nodes use the network even on one machine, so that
// direct and remote ranks can be tested together anywhere.
#pragma once

#include <algorithm>
#include <string>

#include "ferry/error.h"
#include "ferry/formats/portable.h"

namespace ferry {

struct NodeMap {
  int ranks = 1;
  int nodes = 1;

  FERRY_HD constexpr int node_of(int rank) const {
    const int larger_nodes = ranks % nodes;
    const int in_larger = larger_nodes * (ranks / nodes + 1);
    return rank < in_larger ? rank / (ranks / nodes + 1) : larger_nodes + (rank - in_larger) / (ranks / nodes);
  }
  FERRY_HD constexpr bool same_node(int a, int b) const { return node_of(a) == node_of(b); }

  // `rank` stores to `peer`; `mapped`: its memory is mapped.
  FERRY_HD constexpr bool is_direct(int rank, int peer, bool mapped) const {
    return rank == peer || (mapped && same_node(rank, peer));
  }
};

// Throws Error(invalid_argument) unless every node has a rank.
inline void require_valid(const NodeMap& map) {
  if (map.nodes >= 1 && map.nodes <= map.ranks) return;
  throw Error(ErrorKind::invalid_argument, "nodes is " + std::to_string(map.nodes) + "; a world of " +
                                               std::to_string(map.ranks) + " ranks has 1 to " +
                                               std::to_string(std::max(map.ranks, 1)) + " nodes");
}

}  // namespace ferry
