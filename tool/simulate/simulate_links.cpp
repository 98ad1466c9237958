// Sums and bounds over the links of a cluster.
#include "tool/simulate/simulate_links.h"

#include <fmt/core.h>

#include <algorithm>

namespace ferry::app {
namespace {

LinkLoad most_of(const std::vector<LinkLoad>& loads, LinkKind kind) {
  LinkLoad most;
  for (std::size_t i = static_cast<std::size_t>(kind); i < loads.size(); i += kLinkKinds) {
    most.bytes = std::max(most.bytes, loads[i].bytes);
    most.operations = std::max(most.operations, loads[i].operations);
  }
  return most;
}

void raise(TimeBound& bound, const TimeBound& other) {
  if (other.seconds > bound.seconds) bound = other;
}

}  // namespace

const char* to_string(LinkKind kind) { return kind == LinkKind::nvlink ? "nvlink" : "nic"; }

std::string TimeBound::limit() const {
  if (rank < 0) return "nothing travels";
  return fmt::format("{} {} rank {}{}", to_string(kind), sends ? "out of" : "into", rank,
                     by_operations ? ", operations" : "");
}

PhaseLoad::PhaseLoad(const Cluster& cluster)
    : cluster_(cluster),
      sent_(static_cast<std::size_t>(cluster.ranks) * kLinkKinds),
      received_(static_cast<std::size_t>(cluster.ranks) * kLinkKinds) {}

void PhaseLoad::add(int from, int to, std::uint64_t bytes, std::uint64_t operations) {
  if (from == to) return;
  const LinkKind kind = cluster_.link(from, to);
  for (LinkLoad* load : {&sent_[index(from, kind)], &received_[index(to, kind)]}) {
    load->bytes += bytes;
    load->operations += operations;
  }
}

LinkLoad PhaseLoad::total(LinkKind kind) const {
  LinkLoad sum;
  for (int rank = 0; rank < cluster_.ranks; ++rank) {
    sum.bytes += sent(rank, kind).bytes;
    sum.operations += sent(rank, kind).operations;
  }
  return sum;
}

LinkLoad PhaseLoad::most_sent(LinkKind kind) const { return most_of(sent_, kind); }
LinkLoad PhaseLoad::most_received(LinkKind kind) const { return most_of(received_, kind); }

TimeBound PhaseLoad::least_time(bool forwards) const {
  TimeBound bound;
  double latency = 0;
  for (const LinkKind kind : kAllLinkKinds) {
    const LinkSpeed& speed = cluster_.speed_of(kind);
    if (total(kind).operations != 0) latency = forwards ? latency + speed.seconds : std::max(latency, speed.seconds);
    for (int rank = 0; rank < cluster_.ranks; ++rank)
      for (const bool sends : {true, false}) {
        const LinkLoad& load = sends ? sent(rank, kind) : received(rank, kind);
        raise(bound, {static_cast<double>(load.bytes) / speed.bytes_per_second, rank, kind, sends, false});
        if (speed.operations_per_second > 0)
          raise(bound, {static_cast<double>(load.operations) / speed.operations_per_second, rank, kind, sends, true});
      }
  }
  bound.seconds += latency;
  return bound;
}

}  // namespace ferry::app
