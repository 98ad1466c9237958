// Ranks of emulated GPUs of which one has more tokens than a dispatch can take.
#pragma once

#include <gmock/gmock.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

#include "emulated/device_rank.h"
#include "emulated/late_world.h"

namespace ferry::test {

using conformance::Scenario;
using conformance::ScenarioSettings;

inline constexpr int kRefusingRanks = 3;
inline constexpr int kOdd = 1;  // the rank that has too many

inline ScenarioSettings settings_of(const std::vector<RowOrder>& orders, std::uint64_t seed) {
  ScenarioSettings settings;
  settings.shape = {kRefusingRanks, 7, 3, 9, 96};
  settings.options = conformance::options_for("fp8_block128");
  settings.options.row_orders = {RowOrder::by_expert, RowOrder::by_source, RowOrder::padded, RowOrder::in_place};
  settings.options.deadline = std::chrono::seconds(20);
  settings.row_orders = orders;
  settings.routing = "uniform";
  settings.seed = seed;
  return settings;
}

// Its kernels are enqueued together, and run when the machine goes on.
inline void enqueue_held(const std::function<void()>& calls) {
  const emulated::Hold hold;
  calls();
}

struct RefusingRank : DeviceRank {
  RefusingRank(World& world, const Scenario& of) : DeviceRank(world, of), scenario(of) {}

  bool is_odd() const { return exchange.rank() == kOdd; }
  DispatchInput refused_input(const DeviceRound& round) const {
    DispatchInput in = round.in;
    if (is_odd())
      in.tokens.shape[0] = in.topk_ids.shape[0] = in.topk_weights.shape[0] = scenario.settings.shape.max_tokens + 1;
    return in;
  }
  void expect_refused(const char* what, const std::function<void()>& body) const {
    conformance::expect_error(exchange.rank(), what, ErrorKind::invalid_argument,
                              {"tokens of rank 1 has 10 rows", "max_tokens = 9", "another one may follow"}, body);
  }
  void wait() const { cuda::cuda_check(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize"); }
  // A round that is compared byte for byte.
  void good_round(const Scenario& of, bool in_halves = false) {
    DeviceRound round(of, exchange.rank());
    if (in_halves) {
      exchange.dispatch_async(round.in, call);
      exchange.dispatch_wait(round.out, call);
      exchange.combine_async(round.combine_in, call);
      exchange.combine_wait(round.combine_out, call);
    } else {
      exchange.dispatch(round.in, round.out, call);
      exchange.combine(round.combine_in, round.combine_out, call);
    }
    check_rows(round);
    round.host.check_tokens();
  }
  void expect_dispatches(std::uint64_t count) const { EXPECT_EQ(exchange.stats().dispatches, count); }

  const Scenario& scenario;
};

struct Setting {
  const char* name;
  bool has_nodes = false;
  int slow_device = -1;
};

class EmulatedRefusals : public EmulatedGpus, public testing::WithParamInterface<Setting> {
 protected:
  void SetUp() override {
    EmulatedGpus::SetUp();
    emulated::reset({.slow_device = GetParam().slow_device});
  }
  static void run(const std::function<void(World&)>& body) {
    if (GetParam().has_nodes) return run_worlds(make_late_worlds(kRefusingRanks), body);
    run_cuda_ranks(kRefusingRanks, false, body);
  }
};

}  // namespace ferry::test
