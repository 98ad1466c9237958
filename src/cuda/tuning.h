// How many blocks and threads a kernel gets, and which roles its blocks play. Plain values that compare.
#pragma once

#include <algorithm>
#include <ostream>

namespace ferry::cuda {

struct LaunchPolicy {
  int blocks = 0;
  int threads = 0;
  int team_threads = 0;
  int senders = 0;  // dispatch: blocks that send; the first block ranks, the rest lay arrivals out
  friend constexpr bool operator==(const LaunchPolicy&, const LaunchPolicy&) = default;
  friend std::ostream& operator<<(std::ostream& out, const LaunchPolicy& p) {
    return out << p.blocks << " blocks of " << p.threads << " threads in teams of " << p.team_threads << ", "
               << p.senders << " of them sending";
  }
};

// What a kernel can have at once on a device.
struct Resident {
  int multiprocessors = 0;
  int blocks_per_multiprocessor = 0;
  int most_blocks = 0;  // from the caller's max_blocks and the exchange's `concurrent`
};

inline constexpr int kThreads = 512;  // of a block

// Threads of a team, which works on one token at a time. Few tokens get large teams, since the steps of one token
// follow each other; many tokens get small ones, so that more of them are under way.
constexpr int team_threads_for(int blocks, int tokens) {
  if (tokens <= blocks) return kThreads;
  return tokens <= 2 * blocks ? kThreads / 2 : kThreads / 4;
}

inline constexpr int kMostSenders = 66;  // blocks: half an H200's multiprocessors; more of them crowd the links

constexpr LaunchPolicy dispatch_policy(const Resident& resident, int num_tokens, int most_destinations, bool sends,
                                       bool receives) {
  const int most = std::min(resident.multiprocessors * resident.blocks_per_multiprocessor, resident.most_blocks);
  LaunchPolicy policy;
  policy.threads = kThreads;
  policy.team_threads = team_threads_for(most, num_tokens * most_destinations);
  if (!sends) {
    policy.blocks = std::max(1, most);
    return policy;
  }
  const int free_blocks = std::max(1, most - (receives ? 2 : 1));  // the ranking block and one that lays out
  const int wanted = num_tokens <= 2 * kMostSenders ? std::max(1, num_tokens) : kMostSenders;
  policy.senders = std::min({wanted, free_blocks, receives ? std::max(1, most / 2) : free_blocks});
  policy.blocks = receives ? std::max(most, policy.senders + 2) : policy.senders + 1;
  return policy;
}

constexpr LaunchPolicy combine_policy(const Resident& resident, int num_tokens, int most_destinations) {
  LaunchPolicy policy;
  policy.threads = kThreads;
  policy.blocks =
      std::max(1, std::min(resident.multiprocessors * resident.blocks_per_multiprocessor, resident.most_blocks));
  policy.team_threads = team_threads_for(policy.blocks, num_tokens * most_destinations);
  return policy;
}

}  // namespace ferry::cuda
