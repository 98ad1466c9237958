// How many blocks and threads a kernel gets, and which roles its blocks play. Plain values that compare.
#pragma once

#include <algorithm>
#include <ostream>

namespace ferry::cuda {

inline constexpr int kThreads = 512;  // of a block
inline constexpr int kMostTeams = 4;  // of a block
inline constexpr int kLeastTeamThreads = kThreads / kMostTeams;

// Blocks of a dispatch: the first `rankers` rank the routing, the next `senders` send. All but the senders lay arrivals
// out, and the senders too, once they have sent, where `senders_receive`.
struct DispatchRoles {
  int rankers = 0;
  int senders = 0;
  bool senders_receive = false;
  int send_team_threads = kThreads;
  int receive_team_threads = kThreads;
  friend constexpr bool operator==(const DispatchRoles&, const DispatchRoles&) = default;
};

// Teams of a combine, numbered so that the first ones are of different blocks: teams below `senders` send, those from
// `first_receiver` on receive; those that do both send first.
struct CombineRoles {
  int senders = 0;
  int first_receiver = 0;
  int team_threads = kThreads;
  friend constexpr bool operator==(const CombineRoles&, const CombineRoles&) = default;
};

template <class Roles>
struct LaunchPolicy {
  int blocks = 0;
  Roles roles;
  friend constexpr bool operator==(const LaunchPolicy&, const LaunchPolicy&) = default;
};
using DispatchPolicy = LaunchPolicy<DispatchRoles>;
using CombinePolicy = LaunchPolicy<CombineRoles>;

inline std::ostream& operator<<(std::ostream& out, const DispatchPolicy& p) {
  return out << p.blocks << " blocks: " << p.roles.rankers << " rank, " << p.roles.senders << " send in teams of "
             << p.roles.send_team_threads << (p.roles.senders_receive ? " and then" : ", the others")
             << " receive in teams of " << p.roles.receive_team_threads;
}
inline std::ostream& operator<<(std::ostream& out, const CombinePolicy& p) {
  return out << p.blocks << " blocks in teams of " << p.roles.team_threads << ": " << p.roles.senders
             << " send, from the " << p.roles.first_receiver << "th on they receive";
}

// What a kernel can have at once on a device.
struct Resident {
  int multiprocessors = 0;
  int blocks_per_multiprocessor = 0;
  int most_blocks = 0;  // from the caller's max_blocks and the exchange's `concurrent`
  constexpr int blocks() const { return std::min(multiprocessors * blocks_per_multiprocessor, most_blocks); }
};

// Threads of a team, which works on one token at a time. Few tokens get large teams, since the steps of one token
// follow each other; many tokens get small ones, so that more of them are under way.
constexpr int team_threads_for(int blocks, int tokens) {
  if (tokens <= blocks) return kThreads;
  return tokens <= 2 * blocks ? kThreads / 2 : kLeastTeamThreads;
}

inline constexpr int kMostSenders = 66;     // blocks: half an H200's multiprocessors; more of them crowd the links
inline constexpr int kLeastReceivers = 32;  // teams: other ranks may have more tokens than this one

// num_tokens of this rank; about `arrivals` messages come; `parts` of the routing table want a block each.
constexpr DispatchPolicy dispatch_policy(const Resident& resident, int num_tokens, int arrivals, int parts, bool sends,
                                         bool receives) {
  const int most = std::max(1, resident.blocks());
  DispatchPolicy policy;
  DispatchRoles& roles = policy.roles;
  if (sends) {
    roles.rankers = parts + 2 <= most ? parts : 1;
    const int wanted = num_tokens <= 2 * kMostSenders ? std::max(1, num_tokens) : kMostSenders;
    roles.senders = std::max(1, std::min(wanted, (most - roles.rankers) / (receives ? 2 : 1)));
    roles.send_team_threads = team_threads_for(roles.senders, num_tokens);
  }
  const int busy = roles.rankers + roles.senders;
  const int receivers = receives ? std::min(most - busy, std::max(arrivals, kLeastReceivers)) : 0;
  policy.blocks = busy + receivers;
  roles.receive_team_threads = team_threads_for(std::max(1, receivers), arrivals);
  return policy;
}

// About `results` are sent.
constexpr CombinePolicy combine_policy(const Resident& resident, int num_tokens, int results, bool sends,
                                       bool receives) {
  const int most = std::max(1, resident.blocks());
  CombinePolicy policy;
  CombineRoles& roles = policy.roles;
  const int to_send = sends ? std::max(results, kLeastReceivers) : 0;
  const int to_receive = receives ? std::max(num_tokens, 1) : 0;
  roles.team_threads = team_threads_for(most, to_send + to_receive);
  const int per_block = kThreads / roles.team_threads;
  policy.blocks = std::min(most, (to_send + to_receive + per_block - 1) / per_block);
  const int teams = policy.blocks * per_block;
  const bool apart = to_send + to_receive <= teams;  // else each sends first, and then sums what has come
  roles.senders = std::min(to_send, teams);
  roles.first_receiver = apart && sends ? roles.senders : 0;
  return policy;
}

}  // namespace ferry::cuda
