// Results of rows whose magnitudes are at the ends of the range, with weights that are, too: what emulated GPUs make
// of them, beside CPU ranks. A result with a scale for the row then leaves the fast way of the sums (result_sums.cuh).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "conformance/rounds/rank_round.h"
#include "emulated/emulated_ranks.h"
#include "ferry/detail/cuda/state/kernel_params.h"
#include "support/pairs.h"

namespace ferry::test {
namespace {

using conformance::RankRound;
using conformance::Scenario;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// The exponents of a row's columns, and a number that is in one of them, where `special` is not 0.
struct Magnitudes {
  int least;
  int most;
  float special = 0;
};
constexpr Magnitudes kUsual{-6, 6};
constexpr Magnitudes kExtremes[] = {
    {-133, -127},             // subnormal as bf16
    {-121, -116},             // nvfp4: the inverse of the global scale is subnormal, or the scale would overflow
    {-121, -115},             // ... and is barely normal
    {-102, -95},              // ... and is not moderate
    {-74, -66},               // ... on both sides of the least moderate one
    {86, 94},                 // ... and of the largest
    {95, 102},                // ... and is not moderate
    {126, 127},               // the largest bf16
    {-133, 127},              // all
    {-6, 6, kInfinity},       //
    {-6, 6, -kInfinity},      //
    {-6, 6, kNan},            //
    {95, 102, kInfinity},     //
    {-1000, -1000},           // zeros of both signs
    {-1000, -1000, 0x1p-70f}  // one column is none
};
constexpr float kWeights[] = {1.0f,      0.0f,     -0.0f,    kInfinity, -kInfinity, kNan,
                              0x1p-149f, 0x1p-90f, 0x1p-15f, -0.75f,    0x1.8p90f,  3e38f};

class ExtremeRound {
 public:
  ExtremeRound(const conformance::ScenarioSettings& settings, std::uint64_t seed)
      : scenario(make_scenario(settings)), random_(seed) {
    for (RankInput& in : scenario.round.ranks)
      for (float& weight : in.weights) weight = random_.chance(0.6) ? 1.0f : pick(kWeights);
    // Most tokens have rows of one kind: among rows of several kinds only the largest is seen in a sum.
    std::vector<std::vector<Magnitudes>> of_token(scenario.round.ranks.size());
    for (auto& tokens : of_token)
      for (int token = 0; token < settings.shape.max_tokens; ++token) tokens.push_back(draw_kind());
    for (std::size_t rank = 0; rank < scenario.rows.size(); ++rank)
      for (std::size_t row = 0; row < scenario.rows[rank].rows.size(); ++row) {
        const RowOrigin& origin = scenario.rows[rank].rows[row];
        const auto& kinds = of_token[static_cast<std::size_t>(origin.source)];
        const auto hidden = static_cast<std::size_t>(settings.shape.hidden);
        fill(scenario.expert_output[rank].data() + row * hidden, hidden,
             random_.chance(0.8) ? kinds[static_cast<std::size_t>(origin.token)] : draw_kind());
      }
  }

  Scenario scenario;

 private:
  template <class T, std::size_t kCount>
  const T& pick(const T (&values)[kCount]) {
    return values[static_cast<std::size_t>(random_.below(kCount))];
  }
  Magnitudes draw_kind() { return random_.chance(0.2) ? kUsual : pick(kExtremes); }
  void fill(float* row, std::size_t hidden, const Magnitudes& kind) {
    for (std::size_t column = 0; column < hidden; ++column) {
      const float digits = 1.0f + static_cast<float>(random_.below(128)) / 128.0f;
      const float magnitude = random_.chance(0.05) ? 0.0f : std::ldexp(digits, random_.between(kind.least, kind.most));
      row[column] = from_bf16(to_bf16(random_.chance(0.5) ? -magnitude : magnitude));
    }
    if (kind.special != 0.0f) row[random_.below(static_cast<int>(hidden))] = kind.special;
  }

  Random random_;
};

std::vector<float> floats_of(const std::vector<std::byte>& bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

// Processors make different NaNs.
bool are_same(float a, float b) { return (std::isnan(a) && std::isnan(b)) || std::memcmp(&a, &b, sizeof a) == 0; }

enum class Sums { by_rank, exact, unreduced };

class ExtremeResults : public testing::TestWithParam<std::tuple<const char*, Sums>> {
 protected:
  void TearDown() override { change_params<cuda::CombineParams>({}); }

  conformance::ScenarioSettings settings_of(std::uint64_t seed) const {
    const auto [results, sums] = GetParam();
    conformance::ScenarioSettings settings;
    settings.shape = {2, 6, 3, 12, seed % 2 == 0 ? 96 : 800};
    settings.options = conformance::options_for("mxfp8", sums == Sums::by_rank ? Reduction::by_rank : Reduction::exact);
    settings.options.result_format = result_format_named(results);
    settings.options.fused_shared_expert = sums != Sums::unreduced && seed % 3 == 0;
    settings.seed = seed;
    settings.output_dtype = DType::f32;
    settings.unreduced = sums == Sums::unreduced;
    if (settings.unreduced) settings.weights = conformance::WeightForm::none;
    if (sums == Sums::by_rank && seed % 3 == 1) {
      settings.options.row_orders = {RowOrder::by_expert, RowOrder::by_source};
      settings.row_orders = {RowOrder::by_source};
    }
    settings.num_bias = settings.unreduced ? 0 : static_cast<int>(seed % 3);
    if (settings.num_bias == 2) settings.bias_dtype = DType::f16;  // kernels of their own
    return settings;
  }

  // The outputs of CPU ranks.
  static std::vector<std::vector<float>> wanted(const Scenario& scenario) {
    std::vector<std::vector<float>> outputs(scenario.round.ranks.size());
    run_ranks(scenario.settings.shape.ranks, [&](World& world) {
      Exchange exchange(world, scenario.settings.shape, scenario.settings.options);
      RankRound round(scenario, world.rank());
      conformance::run_dispatch(exchange, round, conformance::Form::one_call);
      conformance::run_combine(exchange, round, conformance::Form::one_call);
      outputs[static_cast<std::size_t>(world.rank())] = floats_of(round.output);
    });
    return outputs;
  }

  void compare(std::uint64_t seed, const emulated::Gpus& gpus, int concurrent = 1) {
    conformance::ScenarioSettings settings = settings_of(seed);
    settings.options.concurrent = concurrent;
    SessionRound round;
    round.scenario = ExtremeRound(settings, seed).scenario;
    const std::vector<std::vector<float>> outputs = wanted(round.scenario);
    EmulatedRanks ranks(settings.shape, settings.options, gpus);
    ranks.run({round}, {.seed = seed}, [&](const SessionRound&, int rank, const RankRound& got) {
      const std::vector<float>& expected = outputs[static_cast<std::size_t>(rank)];
      const std::vector<float> values = floats_of(got.output);
      ASSERT_EQ(values.size(), expected.size());
      for (std::size_t i = 0; i < values.size(); ++i) {
        ASSERT_TRUE(are_same(values[i], expected[i]))
            << "seed " << seed << ", rank " << rank << ", value " << i << ": " << values[i] << " for " << expected[i];
        const float magnitude = std::fabs(values[i]);
        large_ += magnitude > 0x1p94f && magnitude < kInfinity;
        small_ += magnitude < 0x1p-80f && magnitude > 0.0f;
      }
    });
  }
  // Such values are of results whose scales are not moderate.
  void expect_extremes() const {
    if (!has_row_scale()) return;
    EXPECT_GT(large_, 50);
    EXPECT_GT(small_, 50);
  }
  static bool has_row_scale() { return std::string(std::get<0>(GetParam())) == "nvfp4"; }
  // Every third seed has another order of rows, another bias, another shared expert. A test has one of three with each
  // format and sum, and those whose values are counted have all.
  void compare_seeds(std::uint64_t first, const emulated::Gpus& gpus, int concurrent = 1) {
    const auto [results, sums] = GetParam();
    const int test = static_cast<int>(first / 10);
    for (int i = 0; i < (has_row_scale() ? 6 : 3) && !HasFailure(); ++i)
      if (has_row_scale() || meet(number_of_results(results), static_cast<int>(sums) + test, i, 3))
        compare(first + static_cast<std::uint64_t>(i), gpus, concurrent);
    expect_extremes();
  }

  int large_ = 0;
  int small_ = 0;
};

TEST_P(ExtremeResults, AreThoseOfCpuRanks) { compare_seeds(1, {}); }

// Rows come through shared memory.
TEST_P(ExtremeResults, AreThoseOfCpuRanksOnFewBlocks) { compare_seeds(11, {.multiprocessors = 8}, 2); }

// A warp has all columns of a row, so several vectors of a result at once.
TEST_P(ExtremeResults, AreThoseOfCpuRanksBySmallTeams) {
  change_params<cuda::CombineParams>([](cuda::CombineParams& params) {
    params.roles.in_place = true;  // a team of one warp has no buffer of its own
    params.roles.send_team_threads = 32;
    params.roles.receive_team_threads = 32;
  });
  compare_seeds(21, {});
}

std::vector<const char*> format_names() {
  std::vector<const char*> names;
  for (const AnyFormat& format : result_formats()) names.push_back(format.name());
  return names;
}
std::string name_of(Sums sums) {
  return sums == Sums::by_rank ? "_by_rank" : sums == Sums::exact ? "_exact" : "_unreduced";
}
INSTANTIATE_TEST_SUITE_P(Formats, ExtremeResults,
                         testing::Combine(testing::ValuesIn(format_names()),
                                          testing::Values(Sums::by_rank, Sums::exact, Sums::unreduced)),
                         [](const auto& each) {
                           return std::string(std::get<0>(each.param)) + name_of(std::get<1>(each.param));
                         });

}  // namespace
}  // namespace ferry::test
