// How many blocks and threads a kernel gets, and which roles its blocks play. Plain values that print and compare;
// docs/tuning.md says what chose each constant.
#pragma once

#include <algorithm>

namespace ferry::cuda {

struct LaunchPolicy {
  int blocks = 0;
  int threads = 0;
  int senders = 0;  // dispatch: blocks that send; the first block ranks, the rest lay arrivals out
  friend constexpr bool operator==(const LaunchPolicy&, const LaunchPolicy&) = default;
};

// What a kernel can have at once on a device.
struct Resident {
  int multiprocessors = 0;
  int blocks_per_multiprocessor = 0;
  int most_blocks = 0;  // from the caller's max_blocks and the exchange's `concurrent`
};

// A thread takes 8 columns at a time: as few turns as 512 threads allow, and no idle warp in the last one.
constexpr int threads_for(int hidden) {
  const int vectors = (hidden + 7) / 8;
  const int turns = (vectors + 511) / 512;
  const int threads = ((vectors + turns - 1) / turns + 31) / 32 * 32;
  return std::clamp(threads, 128, 512);
}

inline constexpr int kMostSenders = 66;  // more senders than this crowd the links; see docs/tuning.md

constexpr LaunchPolicy dispatch_policy(const Resident& resident, int hidden, int num_tokens, bool sends,
                                       bool receives) {
  const int most =
      std::min(resident.multiprocessors * std::min(resident.blocks_per_multiprocessor, 3), resident.most_blocks);
  LaunchPolicy policy;
  policy.threads = threads_for(hidden);
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

constexpr LaunchPolicy combine_policy(const Resident& resident, int hidden) {
  LaunchPolicy policy;
  policy.threads = threads_for(hidden);
  policy.blocks = std::max(
      1, std::min(resident.multiprocessors * std::min(resident.blocks_per_multiprocessor, 2), resident.most_blocks));
  return policy;
}

}  // namespace ferry::cuda
