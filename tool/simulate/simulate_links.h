// Ranks in nodes, the links between them, what a phase puts on each link, and the least time that this takes.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace ferry::app {

enum class LinkKind { nvlink, nic };  // within a node; between nodes
inline constexpr int kLinkKinds = 2;
inline constexpr std::array kAllLinkKinds = {LinkKind::nvlink, LinkKind::nic};
const char* to_string(LinkKind kind);

struct LinkSpeed {
  double bytes_per_second;           // of one rank in one direction
  double seconds;                    // from a store at one end to its sight at the other
  double operations_per_second = 0;  // of one rank in one direction; 0: no limit
};

// Consecutive ranks are a node; the last node may be smaller. Every rank has links of its own.
struct Cluster {
  int ranks = 0;
  int ranks_per_node = 8;
  std::array<LinkSpeed, kLinkKinds> speed;

  int nodes() const { return (ranks + ranks_per_node - 1) / ranks_per_node; }
  int node_of(int rank) const { return rank / ranks_per_node; }
  int first_of(int node) const { return node * ranks_per_node; }
  int end_of(int node) const { return node + 1 == nodes() ? ranks : first_of(node + 1); }
  LinkKind link(int from, int to) const { return node_of(from) == node_of(to) ? LinkKind::nvlink : LinkKind::nic; }
  const LinkSpeed& speed_of(LinkKind kind) const { return speed[static_cast<std::size_t>(kind)]; }
};

struct LinkLoad {
  std::uint64_t bytes = 0;
  std::uint64_t operations = 0;
};

// The least time of a phase, and the link that asks for it.
struct TimeBound {
  double seconds = 0;
  int rank = -1;  // -1: nothing travels
  LinkKind kind = LinkKind::nvlink;
  bool sends = true;
  bool by_operations = false;

  std::string limit() const;  // "nic out of rank 3"
};

class PhaseLoad {
 public:
  explicit PhaseLoad(const Cluster& cluster);

  // What stays on a rank is on no link.
  void add(int from, int to, std::uint64_t bytes, std::uint64_t operations);

  const LinkLoad& sent(int rank, LinkKind kind) const { return sent_[index(rank, kind)]; }
  const LinkLoad& received(int rank, LinkKind kind) const { return received_[index(rank, kind)]; }
  LinkLoad total(LinkKind kind) const;
  LinkLoad most_sent(LinkKind kind) const;  // most bytes of a rank, and most operations of a rank
  LinkLoad most_received(LinkKind kind) const;

  // Every link works all the time, and the last byte takes the latency of its way: the link's own, or, where what
  // crosses nodes is forwarded within them, both.
  TimeBound least_time(bool forwards) const;

 private:
  std::size_t index(int rank, LinkKind kind) const {
    return static_cast<std::size_t>(rank) * kLinkKinds + static_cast<std::size_t>(kind);
  }

  Cluster cluster_;
  std::vector<LinkLoad> sent_, received_;  // [ranks][kinds]
};

}  // namespace ferry::app
