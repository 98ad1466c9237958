// The world itself: what set-up relies on before there is an exchange.
#include <atomic>
#include <cstring>
#include <thread>

#include "conformance/cases/cases.h"
#include "conformance/rounds/rank_round.h"

namespace ferry::conformance {
namespace {

constexpr int kRanks = 4;
constexpr int kAway = 1;

RankMask mask_of(int rank) {
  RankMask mask(kRanks);
  mask[static_cast<std::size_t>(rank)] = true;
  return mask;
}

// Gathers a value from every rank; ranks in the mask read as zero.
void gather_and_check(World& world, std::uint64_t salt, const RankMask& mask) {
  const std::uint64_t mine = salt + static_cast<std::uint64_t>(world.rank()) + 1;
  std::vector<std::uint64_t> all(kRanks, 99);
  world.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)), mask, kSuiteDeadline);
  for (int rank = 0; rank < kRanks; ++rank)
    expect_equal(world.rank(), "all_gather, value of rank " + std::to_string(rank),
                 is_masked(mask, rank) ? 0 : salt + static_cast<std::uint64_t>(rank) + 1,
                 all[static_cast<std::size_t>(rank)]);
}

void gather(const Target& target) {
  on_ranks(target, kRanks, "all_gather", [](World& world) {
    expect_equal(world.rank(), "size", kRanks, static_cast<std::uint64_t>(world.size()));
    for (std::uint64_t turn = 0; turn < 50; ++turn) gather_and_check(world, turn * 1000, {});
    if (world.rank() == kAway) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    world.barrier({}, std::chrono::milliseconds::max());
  });
}

void gather_without_one(const Target& target) {
  if (!target.can_lose_ranks) throw Skipped("this backend cannot go on without a rank");
  on_ranks(target, kRanks, "all_gather with a mask", [](World& world) {
    gather_and_check(world, 7, {});
    if (world.rank() == kAway) return;
    for (std::uint64_t turn = 0; turn < 10; ++turn) gather_and_check(world, turn * 1000, mask_of(kAway));
    world.barrier(mask_of(kAway), kSuiteDeadline);
  });
}

void miss_a_rank(const Target& target) {
  if (!target.can_lose_ranks) throw Skipped("this backend cannot go on without a rank");
  on_ranks(target, kRanks, "a barrier that one rank misses", [](World& world) {
    if (world.rank() == kAway) return;
    expect_error(world.rank(), "barrier", ErrorKind::peer_missing, {"rank " + std::to_string(kAway), "a barrier"},
                 [&] { world.barrier({}, std::chrono::milliseconds(300)); });
    gather_and_check(world, 3, mask_of(kAway));
  });
}

void barrier(const Target& target) {
  if (!target.make_worlds) throw Skipped("the ranks of this backend are not one process");
  std::atomic<int> arrived{0};
  on_ranks(target, kRanks, "barrier", [&](World& world) {
    for (int turn = 1; turn <= 50; ++turn) {
      if (world.rank() == turn % kRanks) std::this_thread::sleep_for(std::chrono::microseconds(200));
      ++arrived;
      world.barrier({}, kSuiteDeadline);
      if (arrived < turn * kRanks)
        throw Failure(world.rank(), "ranks that have come when barrier returns", std::to_string(turn * kRanks),
                      std::to_string(arrived.load()));
      world.barrier({}, kSuiteDeadline);
    }
  });
}

void impossible_worlds(const Target& target) {
  if (!target.make_worlds) throw Skipped("the ranks of this backend are not one process");
  for (const int ranks : {-1, 0, kMaxRanksPerNode + 1})
    expect_error(-1, "a world of " + std::to_string(ranks) + " ranks", ErrorKind::invalid_argument,
                 {"ranks", std::to_string(ranks), "72"}, [&] { (void)target.make_worlds(ranks); });
}

}  // namespace

void add_world_cases(Cases& cases) {
  cases.push_back({"world/all_gather", "every rank gets every value", true, gather});
  cases.push_back(
      {"world/all_gather_masked", "masked ranks read as zeros and are not waited for", true, gather_without_one});
  cases.push_back({"world/missing_rank", "a barrier names the rank that does not come", true, miss_a_rank});
  cases.push_back({"world/barrier", "nobody leaves before all have come", true, barrier});
  cases.push_back({"world/impossible", "too few and too many ranks are refused", true, impossible_worlds});
}

}  // namespace ferry::conformance
