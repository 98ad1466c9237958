#include "support/stepped_fabric.h"

#include <chrono>

namespace ferry::test {
namespace {

// Longer than any healthy turn: a rank that holds the baton and blocks elsewhere must not hang the tests.
constexpr std::chrono::seconds kLongestTurn{60};
constexpr std::chrono::milliseconds kLookAgain{5};
// The word that a rank looks at may have come just before the first of these turns, but not before the second.
constexpr int kIdleTurns = 2;

double draw_change(Random& random) {
  constexpr double kChances[] = {0.05, 0.3, 1.0};
  return kChances[random.below(3)];
}

}  // namespace

Baton::Baton(std::uint64_t seed, int ranks) : random_(seed), change_(draw_change(random_)) {
  for (int rank = 0; rank < ranks; ++rank) ranks_.push_back(std::make_unique<RankState>());
}

void Baton::join(int rank) {
  const std::lock_guard lock(guard_);
  ++state_of(rank).fabrics;
}

void Baton::leave(int rank) {
  const std::lock_guard lock(guard_);
  --state_of(rank).fabrics;
  if (holder_ == rank && !takes_part(rank)) hand_on(rank);
}

void Baton::away(int rank) {
  const std::lock_guard lock(guard_);
  if (holder_ == kNobody) return;
  state_of(rank).away = true;
  if (holder_ == rank) hand_on(rank);
}

void Baton::back(int rank) {
  const std::lock_guard lock(guard_);
  state_of(rank).away = false;
  someone_is_back_.notify_all();
}

bool Baton::waits_alone_for_others(int rank) {
  bool others_away = false;
  for (int other = 0; other < static_cast<int>(ranks_.size()); ++other) {
    if (other != rank && takes_part(other)) return false;
    others_away = others_away || state_of(other).away;
  }
  return others_away;
}

void Baton::hand_on(int from) {
  std::vector<int> others;
  for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank)
    if (rank != from && takes_part(rank)) others.push_back(rank);
  if (others.empty()) return;  // it stays here until someone else takes part
  holder_ = others[static_cast<std::size_t>(random_.below(static_cast<int>(others.size())))];
  state_of(holder_).turn.notify_all();
}

void Baton::step(int rank, bool idle) {
  std::unique_lock lock(guard_);
  if (idle && waits_alone_for_others(rank)) someone_is_back_.wait_for(lock, kLookAgain);
  if (holder_ == kNobody || !takes_part(holder_)) hand_on(kNobody);  // the first to come draws who is first
  if (holder_ == rank && (idle || random_.chance(change_))) hand_on(rank);
  if (!state_of(rank).turn.wait_for(lock, kLongestTurn, [&] { return holder_ == rank; }))
    throw std::runtime_error("the baton of SteppedFabric did not come: its holder blocks outside the fabric");
  if (idle)
    ++state_of(rank).idle_turns;
  else
    forget_idle_turns();
}

bool Baton::all_wait() {
  const std::lock_guard lock(guard_);
  for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank)
    if (takes_part(rank) && state_of(rank).idle_turns < kIdleTurns) return false;
  return true;
}

void Baton::note_act() {
  const std::lock_guard lock(guard_);
  forget_idle_turns();
}

void Baton::forget_idle_turns() {
  for (const std::unique_ptr<RankState>& each : ranks_) each->idle_turns = 0;
}

SteppedNet::SteppedNet(std::shared_ptr<Baton> shared, std::uint64_t seed, Reach reached, const cpu::Heaps& heaps,
                       bool lags)
    : baton(std::move(shared)), wire(seed), reach(reached), lagging(lags && heaps.size() > 1), kept(heaps) {
  if (lagging) {
    Random random(seed);
    const int ranks = static_cast<int>(heaps.size());
    const int from = random.below(ranks);
    wire.hold_back(from, (from + 1 + random.below(ranks - 1)) % ranks);
  }
  for (std::size_t rank = 0; rank < heaps.size(); ++rank)
    if (heaps[rank] != nullptr) baton->join(static_cast<int>(rank));
}

}  // namespace ferry::test
