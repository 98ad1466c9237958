// What a few exchanges ask of kernels of their own, on emulated GPUs against the oracle: rows, bias and sums that are
// f16, and nvfp4 with a global scale for each token. The conformance suite has more, in host memory.
#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "emulated/device_rank.h"
#include "emulated/emulated_ranks.h"
#include "ferry/detail/cuda/state/kernel_params.h"
#include "support/pairs.h"

namespace ferry::test {
namespace {

using conformance::Encoded;
using conformance::Form;
using conformance::ScenarioSettings;

constexpr RowOrders kAllOrders{RowOrder::by_expert, RowOrder::by_source, RowOrder::padded, RowOrder::in_place};

void run(const std::vector<ScenarioSettings>& rounds, std::uint64_t seed, const emulated::Gpus& gpus,
         EmulatedReach reach = EmulatedReach::direct) {
  std::vector<SessionRound> session;
  for (const ScenarioSettings& settings : rounds)
    session.push_back({make_scenario(settings), session.size() % 2 == 0 ? Form::split : Form::one_call});
  try {
    EmulatedRanks ranks(rounds[0].shape, rounds[0].options, gpus, reach);
    ranks.run(session, {.seed = seed});
  } catch (const std::exception& error) {
    FAIL() << "seed " << seed << ": " << error.what() << "\n" << describe(rounds[0]);
  }
}

// ---- f16

// The format of results, and the reduction.
class EmulatedHalves : public testing::TestWithParam<std::tuple<const char*, Reduction>> {
 protected:
  void TearDown() override { change_params<cuda::CombineParams>({}); }

  // Rounds in which rows, bias and sums are f16, all or some of them.
  std::vector<ScenarioSettings> rounds(int hidden) const {
    const auto [results, reduction] = GetParam();
    std::vector<ScenarioSettings> all;
    for (int which = 1; which < 8; ++which) {
      ScenarioSettings settings;
      settings.shape = {3, 7, 3, 5, hidden};
      settings.options = conformance::options_for("bf16", reduction);
      settings.options.result_format = result_format_named(results);
      settings.options.fused_shared_expert = true;
      settings.routing = which % 2 == 0 ? "ragged" : "uniform";
      settings.seed = static_cast<std::uint64_t>(100 + which);
      settings.row_dtype = (which & 1) != 0 ? DType::f16 : which == 4 ? DType::f32 : DType::bf16;
      settings.output_dtype = (which & 2) != 0 ? DType::f16 : DType::f32;
      settings.bias_dtype = (which & 4) != 0 ? DType::f16 : DType::bf16;
      settings.num_bias = which % 3;
      all.push_back(settings);
    }
    return all;
  }
};

TEST_P(EmulatedHalves, AgreeWithTheOracle) {
  run(rounds(96), 1, {});
  run(rounds(352), 2, {.multiprocessors = 5});
}

TEST_P(EmulatedHalves, AgreeByLatePuts) {
  if (std::get<0>(GetParam()) == std::string("f16"))
    GTEST_SKIP() << "the kernels of late worlds are compiled for no results in f16";
  run(rounds(96), 5, {}, EmulatedReach::late_puts);
}

TEST_P(EmulatedHalves, AgreeByTeamsOfEverySize) {
  constexpr int kThreads[] = {32, 128, 512};
  const auto [results, reduction] = GetParam();
  const std::vector<ScenarioSettings> all = rounds(352);
  for (int i = 0; i < 3; ++i) {
    change_params<cuda::CombineParams>([threads = kThreads[i]](cuda::CombineParams& params) {
      params.roles.in_place = true;  // a team of one warp has no buffer of its own
      params.roles.send_team_threads = threads;
    });
    std::vector<ScenarioSettings> chosen;
    for (int which = 0; which < static_cast<int>(all.size()); ++which)
      if (meet(which, number_of_results(results) + static_cast<int>(reduction), i, 3))
        chosen.push_back(all[static_cast<std::size_t>(which)]);
    run(chosen, 3, {});
  }
}

TEST_P(EmulatedHalves, AgreeUnreduced) {
  if (std::get<1>(GetParam()) == Reduction::by_rank) return;
  std::vector<ScenarioSettings> all = rounds(96);
  for (ScenarioSettings& settings : all) {
    settings.options.fused_shared_expert = false;
    settings.num_bias = 0;
    settings.unreduced = true;
    settings.weights = conformance::WeightForm::none;
  }
  run(all, 4, {});
}

INSTANTIATE_TEST_SUITE_P(Formats, EmulatedHalves,
                         testing::Combine(testing::Values("bf16", "f16", "fp8_block128", "nvfp4"),
                                          testing::Values(Reduction::by_rank, Reduction::exact)),
                         [](const auto& each) {
                           return std::string(std::get<0>(each.param)) +
                                  (std::get<1>(each.param) == Reduction::by_rank ? "_by_rank" : "_exact");
                         });

// ---- a global scale for each token

class EmulatedScales : public testing::TestWithParam<Encoded> {
 protected:
  void TearDown() override { change_params<cuda::DispatchParams>({}); }

  std::vector<ScenarioSettings> rounds(int hidden) const {
    using enum RowOrder;
    std::vector<ScenarioSettings> all;
    for (const std::vector<RowOrder>& orders :
         {std::vector{by_expert}, std::vector{padded, by_source}, std::vector{in_place, by_expert, by_source}}) {
      ScenarioSettings settings;
      settings.shape = {3, 7, 3, 5, hidden};
      settings.options = conformance::options_for("nvfp4");
      settings.options.dynamic_scales = true;
      settings.options.row_orders = kAllOrders;
      settings.options.expert_alignment = 4;
      settings.row_orders = orders;
      settings.encoded = GetParam();
      settings.routing = "ragged";
      settings.seed = 120 + all.size();
      settings.token_dtype = all.size() == 1 && GetParam() == Encoded::nobody ? DType::f32 : DType::bf16;
      settings.more_outputs = all.size() == 2;
      all.push_back(settings);
    }
    return all;
  }
};

TEST_P(EmulatedScales, AgreeInEveryOrderOfRows) {
  run(rounds(96), 1, {});
  run(rounds(352), 2, {.multiprocessors = 5});
}

TEST_P(EmulatedScales, AgreeByLatePuts) {
  run(rounds(96), 5, {}, EmulatedReach::late_puts);
  run(rounds(352), 6, {}, EmulatedReach::late_puts);
}

TEST_P(EmulatedScales, AgreeByTeamsOfEverySize) {
  for (const int threads : {128, 512}) {
    change_params<cuda::DispatchParams>([threads](cuda::DispatchParams& params) {
      params.roles.stores = threads == 512;
      params.roles.send_team_threads = threads;
    });
    run(rounds(32), 3, {});
    run(rounds(352), 4, {});
  }
}

INSTANTIATE_TEST_SUITE_P(Encoded, EmulatedScales, testing::Values(Encoded::nobody, Encoded::odd_ranks),
                         [](const auto& each) {
                           return std::string(each.param == Encoded::nobody ? "nobody" : "odd_ranks");
                         });

}  // namespace
}  // namespace ferry::test
