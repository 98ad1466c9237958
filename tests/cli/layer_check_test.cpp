// The check behind `ferry layer --check`: right outputs pass, and an output that one of the layer's steps got wrong
// does not.
#include "tool/layer/check/layer_check.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "tool/layer/inputs/value_faults.h"
#include "tool/layer/layer.h"
#include "tool/ranks/ranks.h"

namespace ferry::app {
namespace {

constexpr int kTokens = 40;
constexpr int kHidden = 128;
constexpr int kExperts = 7;
constexpr int kTopK = 3;
constexpr int kInter = 48;

struct Arrays {
  std::vector<float> x, weights, gate_up, down, shared_gate_up, shared_down;
  std::vector<std::int32_t> ids;

  explicit Arrays(unsigned seed) {
    std::mt19937 random(seed);
    const auto fill = [&](std::vector<float>& values, std::size_t size, float deviation) {
      std::normal_distribution<float> normal(0.0f, deviation);
      values.resize(size);
      for (float& value : values) value = normal(random);
    };
    fill(x, std::size_t{kTokens} * kHidden, 1.0f);
    fill(weights, std::size_t{kTokens} * kTopK, 0.5f);
    fill(gate_up, std::size_t{kExperts} * 2 * kInter * kHidden, 0.1f);
    fill(down, std::size_t{kExperts} * kHidden * kInter, 0.15f);
    fill(shared_gate_up, std::size_t{2} * kInter * kHidden, 0.1f);
    fill(shared_down, std::size_t{kHidden} * kInter, 0.15f);
    for (int token = 0; token < kTokens; ++token)
      for (int k = 0; k < kTopK; ++k) ids.push_back((token + 2 * k) % kExperts);
  }

  Layer layer() const {
    Layer layer;
    layer.tokens = kTokens;
    layer.hidden = kHidden;
    layer.experts = kExperts;
    layer.top_k = kTopK;
    layer.inter = kInter;
    layer.x = x.data();
    layer.ids = ConstTensor(ids.data(), DType::i32, {kTokens, kTopK});
    layer.weights = weights.data();
    layer.gate_up = gate_up.data();
    layer.down = down.data();
    return layer;
  }
};

struct OracleCase {
  const char* format;
  Reduction reduction;
};

class OracleTest : public testing::TestWithParam<OracleCase> {
 protected:
  LayerOptions options() const {
    return {.ranks = 3, .format = format_named(GetParam().format), .reduction = GetParam().reduction};
  }
  std::vector<float> run(const Layer& layer) const {
    std::vector<float> output(std::size_t{kTokens} * kHidden);
    run_layer(choose_backend("cpu").make(options().ranks), layer, options(), output.data());
    return output;
  }
  CheckResult check(const Layer& layer, const std::vector<float>& output) const {
    return check_layer(layer, options(), output.data(), OracleTokens::as_sent);
  }
  const Arrays arrays_{11};
};

TEST_P(OracleTest, RightOutputPasses) {
  const CheckResult result = check(arrays_.layer(), run(arrays_.layer()));
  EXPECT_TRUE(result.ok);
  EXPECT_LT(result.worst_share, 1.0);
  EXPECT_GT(result.worst_share, 0.01) << "the bound is loose";
  EXPECT_EQ(result.elements, kTokens * kHidden);
}

TEST_P(OracleTest, OneWrongElementFails) {
  std::vector<float> output = run(arrays_.layer());
  output[17 * kHidden + 5] += 0.25f;
  const CheckResult result = check(arrays_.layer(), output);
  EXPECT_FALSE(result.ok);
  EXPECT_EQ(result.worst_token, 17);
  EXPECT_EQ(result.worst_column, 5);
  EXPECT_GT(result.max_error, result.bound_there);
}

TEST_P(OracleTest, NotANumberFails) {
  std::vector<float> output = run(arrays_.layer());
  output[2 * kHidden + 3] = std::numeric_limits<float>::quiet_NaN();
  const CheckResult result = check(arrays_.layer(), output);
  EXPECT_FALSE(result.ok);
  EXPECT_EQ(result.worst_token, 2);
  EXPECT_EQ(result.worst_column, 3);
  EXPECT_GT(result.rms_error, 0);
}

TEST_P(OracleTest, SwappedExpertsFail) {
  Arrays other = arrays_;
  std::swap(other.ids[4 * kTopK], other.ids[5 * kTopK]);
  EXPECT_FALSE(check(arrays_.layer(), run(other.layer())).ok);
}

TEST_P(OracleTest, ForgottenRowFails) {
  Arrays other = arrays_;
  other.ids[8 * kTopK + 1] = -1;
  EXPECT_FALSE(check(arrays_.layer(), run(other.layer())).ok);
}

TEST_P(OracleTest, WrongWeightFails) {
  Arrays other = arrays_;
  other.weights[9 * kTopK + 2] += 1.0f;
  EXPECT_FALSE(check(arrays_.layer(), run(other.layer())).ok);
}

TEST_P(OracleTest, GateAndUpSwappedFails) {
  Arrays other = arrays_;
  const auto begin = other.gate_up.begin();
  std::swap_ranges(begin, begin + kInter * kHidden, begin + kInter * kHidden);
  EXPECT_FALSE(check(arrays_.layer(), run(other.layer())).ok);
}

TEST_P(OracleTest, ForgottenSharedExpertFails) {
  Layer with_shared = arrays_.layer();
  with_shared.shared_inter = kInter;
  with_shared.shared_gate_up = arrays_.shared_gate_up.data();
  with_shared.shared_down = arrays_.shared_down.data();
  EXPECT_TRUE(check(with_shared, run(with_shared)).ok);
  EXPECT_FALSE(check(with_shared, run(arrays_.layer())).ok);
}

std::string case_name(const testing::TestParamInfo<OracleCase>& tested) {
  return std::string(tested.param.format) + "_" + to_string(tested.param.reduction);
}

INSTANTIATE_TEST_SUITE_P(Cases, OracleTest,
                         testing::Values(OracleCase{"bf16", Reduction::exact}, OracleCase{"bf16", Reduction::by_rank},
                                         OracleCase{"fp8_block128", Reduction::by_rank},
                                         OracleCase{"mxfp4", Reduction::exact}),
                         case_name);

// Equal values round alike, so errors add up as the bound's worst case has it.
TEST(OracleBound, HoldsWhereAllRoundingsAgree) {
  Arrays arrays(1);
  for (auto* values : {&arrays.x, &arrays.gate_up, &arrays.down}) std::fill(values->begin(), values->end(), 0.1f);
  const LayerOptions options{.ranks = 2};
  std::vector<float> output(std::size_t{kTokens} * kHidden);
  run_layer(choose_backend("cpu").make(options.ranks), arrays.layer(), options, output.data());
  const CheckResult result = check_layer(arrays.layer(), options, output.data(), OracleTokens::as_sent);
  EXPECT_TRUE(result.ok) << result.worst_share;
}

TEST(OracleTokensAsGiven, ShowWhatTheFormatCosts) {
  const Arrays arrays(5);
  const LayerOptions options{.ranks = 2, .format = format_named("mxfp4")};
  std::vector<float> output(std::size_t{kTokens} * kHidden);
  run_layer(choose_backend("cpu").make(options.ranks), arrays.layer(), options, output.data());
  const CheckResult sent = check_layer(arrays.layer(), options, output.data(), OracleTokens::as_sent);
  const CheckResult given = check_layer(arrays.layer(), options, output.data(), OracleTokens::as_given);
  EXPECT_TRUE(sent.ok);
  EXPECT_GT(given.rms_error, 10 * sent.rms_error);
}

TEST(NonFiniteValues, AreCountedByRowWithTheFirstPlace) {
  std::vector<float> values(12, 1.0f);
  EXPECT_EQ(find_non_finite(values.data(), 3, 4).values, 0);
  EXPECT_EQ(find_non_finite(values.data(), 3, 4).first_row, -1);
  values[6] = std::numeric_limits<float>::infinity();
  values[7] = std::numeric_limits<float>::quiet_NaN();
  values[8] = -std::numeric_limits<float>::infinity();
  const NonFinite found = find_non_finite(values.data(), 3, 4);
  EXPECT_EQ(found.values, 3);
  EXPECT_EQ(found.rows, 2);
  EXPECT_EQ(found.first_row, 1);
  EXPECT_EQ(found.first_column, 2);
}

// The rows that formats carry worst: one value that sets the scale, and others in the middle between two codes.
TEST(LostTokens, AreNoneInAFormatWhoseScaleFits) {
  Arrays arrays(3);
  std::mt19937 random(4);
  std::uniform_real_distribution<float> share(0.0f, 1.0f);
  for (int token = 0; token < kTokens; ++token)
    for (int column = 0; column < kHidden; ++column) {
      float& value = arrays.x[static_cast<std::size_t>(token * kHidden + column)];
      if (token % 4 == 1) value = column % 16 == 0 ? 3.55f : 0.24f;
      if (token % 4 == 2) value = column % 32 == 0 ? 1.0f : share(random) / 12;
      if (token % 4 == 3) value = std::exp(8 * share(random));
    }
  for (const AnyFormat& format : all_formats()) {
    const LostTokens lost = find_lost_tokens(arrays.layer(), format, 1.0f).lost();
    EXPECT_EQ(lost.count, 0) << format.name() << ": token " << lost.first;
  }
}

TEST(LostTokens, AreFoundWhereTheInputScaleDoesNotFit) {
  Arrays arrays(3);
  const AnyFormat nvfp4 = format_named("nvfp4");
  const LostTokens lost = find_lost_tokens(arrays.layer(), nvfp4, 1e-30f).lost();
  EXPECT_EQ(lost.count, kTokens);
  EXPECT_EQ(lost.first, 0);
  EXPECT_EQ(lost.rms_of_error, lost.rms);  // nothing is left
  EXPECT_NEAR(lost.rms, 1.0, 0.2);
  const auto fitting = static_cast<float>(fitting_input_scale(lost.largest));
  EXPECT_EQ(find_lost_tokens(arrays.layer(), nvfp4, fitting).lost().count, 0);
  EXPECT_EQ(find_lost_tokens(arrays.layer(), nvfp4, 1e6f).lost().count, kTokens);
  for (int column = 0; column < kHidden; ++column) arrays.x[std::size_t{5} * kHidden + column] *= 1e-7f;
  EXPECT_EQ(find_lost_tokens(arrays.layer(), nvfp4, fitting).lost().first, 5);
  EXPECT_EQ(find_lost_tokens(arrays.layer(), format_named("mxfp4"), fitting).lost().count, 0);
}

// What arrives may have more than half of the size that was sent, or more than all of it: the error is what is said.
TEST(LostTokens, AreToldByTheirError) {
  LossFinder finder(format_named("fp8_block128"), 128, 1.0f);
  for (const float size : {1e-10f, 2.5e-10f}) {
    std::vector<float> row(128);
    for (std::size_t i = 0; i < row.size(); ++i) row[i] = size * (0.2f + static_cast<float>(i % 16) / 8);
    finder.add(0, row);
  }
  ASSERT_GT(finder.lost().count, 0);
  EXPECT_GT(finder.lost().rms_of_error, finder.lost().rms / 2);
  EXPECT_NE(finder.text("token", 2).find("wrong by more than half of "), std::string::npos);
}

TEST(LayerPlan, SplitsTokensAndRounds) {
  EXPECT_EQ(tokens_of_rank(10, 4, 0).count, 3);
  EXPECT_EQ(tokens_of_rank(10, 4, 1).begin, 3);
  EXPECT_EQ(tokens_of_rank(10, 4, 2).count, 2);
  EXPECT_EQ(tokens_of_rank(10, 4, 3).begin + tokens_of_rank(10, 4, 3).count, 10);
  Layer layer = Arrays(1).layer();
  layer.tokens = 100'000;
  const LayerPlan plan = plan_layer(layer, {.ranks = 4});
  EXPECT_EQ(plan.rounds, 7);
  EXPECT_LE(plan.shape.max_tokens, kMostTokensPerRound);
  EXPECT_GE(plan.shape.max_tokens * plan.rounds, 25'000);
  EXPECT_EQ(plan_layer(layer, {.ranks = 4, .one_round = true}).shape.max_tokens, 25'000);
}

}  // namespace
}  // namespace ferry::app
