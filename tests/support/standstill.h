// Standstill: sees when the ranks of an exchange all wait for what will never come, so that their deadlines may pass at
// once. A rank that a busy machine gives no core is not missing, and no clock says whether it is: a test with deadlines
// of real time fails on a machine that is slow enough.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "cpu/fabric/host_waits.h"

namespace ferry::test {

class Standstill {
 public:
  // `delivered`: what a wire carried so far, or -1 while something is under way; null where stores are there at once.
  Standstill(int ranks, std::function<std::int64_t()> delivered)
      : idle_since_(static_cast<std::size_t>(ranks)), delivered_(std::move(delivered)) {
    for (auto& each : idle_since_) each = kBusy;
  }

  // Something that others may have waited for is done.
  void note_act() { ++acts_; }
  // The rank neither waits nor acts any more. All are busy until they say otherwise.
  void leave(int rank) { of(rank) = kLeft; }
  void work(int rank) { of(rank) = kBusy; }

  // What happened so far; -1 while something is under way.
  std::int64_t happened() {
    const std::int64_t acts = acts_;
    const std::int64_t delivered = delivered_ ? delivered_() : 0;
    return delivered < 0 ? -1 : acts + delivered;
  }
  // The rank has looked for what it waits for after all that had happened at `since`, and did not find it.
  void wait(int rank, std::int64_t since) { of(rank) = since; }
  // Every rank has, and nothing happened since then: so nothing will.
  bool is_reached() {
    const std::int64_t now = happened();
    if (now < 0) return false;
    for (const auto& each : idle_since_)
      if (each != kLeft && each != now) return false;
    return now == happened();
  }

 private:
  static constexpr std::int64_t kBusy = -2;
  static constexpr std::int64_t kLeft = -3;
  std::atomic<std::int64_t>& of(int rank) { return idle_since_[static_cast<std::size_t>(rank)]; }

  std::vector<std::atomic<std::int64_t>> idle_since_;
  std::function<std::int64_t()> delivered_;
  std::atomic<std::int64_t> acts_{0};
};

// Its deadline is a standstill; that of the clock only ends a test that would hang.
class StandstillPacer {
 public:
  StandstillPacer(Standstill& all, int rank) : all_(all), rank_(rank) {}
  ~StandstillPacer() { all_.work(rank_); }
  StandstillPacer(const StandstillPacer&) = delete;
  StandstillPacer& operator=(const StandstillPacer&) = delete;

  // Called after a look that found nothing: one that began after the last pause had returned.
  Pace pause() {
    if (before_ >= 0) all_.wait(rank_, before_);
    before_ = all_.happened();
    std::this_thread::yield();
    return all_.is_reached() || cpu::Clock::now() >= hangs_ ? Pace::expired : Pace::look_for_abort;
  }

 private:
  Standstill& all_;
  int rank_;
  std::int64_t before_ = -1;
  cpu::Clock::time_point hangs_ = cpu::Clock::now() + std::chrono::minutes(2);
};

}  // namespace ferry::test
