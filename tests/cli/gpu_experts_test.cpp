// What experts on a GPU compute, without one: the plan of their products, and the bound of the check on sums that are
// made in another order, as a GPU's matrix units make them.
#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "ferry/rows/activation.h"
#include "support/layer_arrays.h"
#include "support/matrix_unit.h"
#include "tool/layer/check/layer_check.h"
#include "tool/layer/experts/expert_place.h"
#include "tool/layer/experts/expert_plan.h"
#include "tool/layer/rows/rank_buffers.h"
#include "tool/ranks/rank_calls.h"

namespace ferry::app {
namespace {

using test::LayerArrays;
using test::LayerSizes;
using test::MatrixUnit;

// ---- the plan

TEST(ExpertPlan, TakesTheRowsOfEachExpertInTurn) {
  const TokenSpan groups[] = {{0, 3}, {4, 0}, {4, 7}, {16, 1}};  // rows 3 and 11 to 15 are padding
  const ExpertPlan plan = plan_by_expert(groups, 3);
  EXPECT_EQ(plan.rows, (std::vector<std::uint32_t>{0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 16}));
  EXPECT_EQ(plan.steps,
            (std::vector<ExpertStep>{{0, 0, 3, 0}, {2, 3, 3, 4}, {2, 6, 3, 7}, {2, 9, 1, 10}, {3, 10, 1, 16}}));
  EXPECT_TRUE(plan.results.empty());
  EXPECT_TRUE(plan_by_expert({}, 3).steps.empty());
}

TEST(ExpertPlan, SortsRowsBySourceByExpert) {
  const std::int32_t ids[] = {2, -1, 0, 2, -1, -1, 2, 0};  // four rows, top-2; expert 1 has none
  const ExpertPlan plan = plan_by_source(ids, 2, 3, 2);
  EXPECT_EQ(plan.rows, (std::vector<std::uint32_t>{1, 3, 0, 1, 3}));
  EXPECT_EQ(plan.results, (std::vector<std::int32_t>{2, -1, 0, 3, -1, -1, 4, 1}));
  EXPECT_EQ(plan.steps, (std::vector<ExpertStep>{{0, 0, 2, 0}, {2, 2, 2, 2}, {2, 4, 1, 4}}));
}

TEST(ExpertPlan, HasEachRowOnceWhateverComes) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 200; ++trial) {
    const int groups = 1 + static_cast<int>(random() % 9), top_k = 1 + static_cast<int>(random() % 4);
    const int at_once = 1 + static_cast<int>(random() % 5);
    std::vector<std::int32_t> ids(static_cast<std::size_t>(top_k) * (random() % 20));
    for (std::int32_t& id : ids) id = static_cast<std::int32_t>(random() % static_cast<unsigned>(groups + 1)) - 1;
    const ExpertPlan plan = plan_by_source(ids, top_k, groups, at_once);
    std::multiset<std::pair<int, std::int64_t>> asked, planned;
    for (std::size_t entry = 0; entry < ids.size(); ++entry)
      if (ids[entry] >= 0) asked.emplace(ids[entry], entry / static_cast<std::size_t>(top_k));
    std::int64_t line = 0;
    for (const ExpertStep& step : plan.steps) {
      EXPECT_EQ(step.first, line);
      EXPECT_EQ(step.result, line);
      EXPECT_TRUE(step.count >= 1 && step.count <= at_once);
      for (int i = 0; i < step.count; ++i, ++line)
        planned.emplace(step.group, plan.rows[static_cast<std::size_t>(line)]);
    }
    EXPECT_EQ(planned, asked);
    for (std::size_t entry = 0; entry < ids.size(); ++entry) {
      ASSERT_EQ(plan.results[entry] >= 0, ids[entry] >= 0);
      if (ids[entry] < 0) continue;
      EXPECT_EQ(plan.rows[static_cast<std::size_t>(plan.results[entry])], entry / static_cast<std::size_t>(top_k));
    }
  }
}

TEST(ExpertProducts, CoverTheColumnsInParts) {
  EXPECT_EQ(products_of(5, 7, 96), (std::vector<Product>{{5, 7, 96, 1, 0, 0}}));
  EXPECT_EQ(products_of(5, 7, 512), (std::vector<Product>{{5, 7, 256, 2, 0, 0}}));
  EXPECT_EQ(products_of(5, 7, 800), (std::vector<Product>{{5, 7, 256, 3, 0, 0}, {5, 7, 32, 1, 768, 3}}));
  for (int depth = 32; depth < 3000; depth += 32) {
    int columns = 0, partials = 0;
    for (const Product& product : products_of(1, 1, depth)) {
      EXPECT_EQ(product.first, columns);
      EXPECT_EQ(product.partial, partials);
      EXPECT_LE(product.depth, kProductStep);
      columns += product.depth * product.batch;
      partials += product.batch;
    }
    EXPECT_EQ(columns, depth);
    EXPECT_EQ(partials, num_partials(depth));
  }
}

TEST(ExpertProducts, FitInTheirMemory) {
  for (const auto& [hidden, inter] : {std::pair{32, 1}, {2880, 2880}, {4096, 14336}, {7168, 2048}, {16384, 53248}}) {
    const int rows = rows_at_once(hidden, inter);
    EXPECT_TRUE(rows >= 64 && rows <= 2048 && rows % 64 == 0) << rows;
    EXPECT_TRUE(rows == 64 || partial_values(hidden, inter, rows) * 4 <= std::int64_t{512} << 20) << rows;
    for (const int narrower : {inter, 1})  // a shared expert may be wider than the others
      EXPECT_LE(partial_values(hidden, narrower, rows), partial_values(hidden, inter, rows));
  }
}

// ---- the bound

// The sum of parts of a GPU, and how far it is from the exact one, as a share of the bound.
double share_of_bound(const std::vector<float>& a, const std::vector<float>& b, unsigned seed, int at_once) {
  const int count = static_cast<int>(a.size());
  MatrixUnit unit(seed, at_once);
  double exact = 0, magnitude = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    exact += double{a[i]} * double{b[i]};
    magnitude += std::abs(double{a[i]} * double{b[i]});
  }
  float sum = 0;
  for (const Product& product : products_of(1, 1, count))
    for (int part = 0; part < product.batch; ++part) {
      const int first = product.first + part * product.depth;
      const auto from = [first](const std::vector<float>& values) {
        return [&values, first](int i) { return values[static_cast<std::size_t>(first + i)]; };
      };
      const float partial = unit.sum(product.depth, from(a), from(b));
      sum = first == 0 ? partial : sum + partial;
    }
  return std::abs(double{sum} - exact) / (gpu_sum_error(count) * magnitude);
}

std::vector<float> bf16_values(std::mt19937& random, int count, bool positive) {
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) {
    value = normal(random) * std::ldexp(1.0f, static_cast<int>(random() % 12));
    value = from_bf16(to_bf16(positive ? std::abs(value) : value));
  }
  return values;
}

TEST(GpuSumError, HoldsInEveryOrder) {
  std::mt19937 random(2);
  double worst = 0;
  for (unsigned trial = 0; trial < 600; ++trial) {
    const int count = 1 + static_cast<int>(random() % 1500);
    const bool positive = trial % 2 == 0;  // all cuts go the same way
    const std::vector<float> a = bf16_values(random, count, positive), b = bf16_values(random, count, positive);
    for (const int at_once : {4, 8, 16}) {
      const double share = share_of_bound(a, b, trial, at_once);
      EXPECT_LE(share, 1) << count << " products, " << at_once << " at once";
      worst = std::max(worst, share);
    }
  }
  EXPECT_GT(worst, 0.05) << "the bound is loose";
}

// Products whose last bits are cut every time, and as far as cuts can go.
TEST(GpuSumError, HoldsWhereAllCutsAgree) {
  for (const int count : {4, 31, 256, 1000, 7168}) {
    std::vector<float> a(static_cast<std::size_t>(count), 0x1.fep-12f), b(static_cast<std::size_t>(count), 0x1.fep-12f);
    for (std::size_t part = 0; part < a.size(); part += kProductStep) a[part] = b[part] = 1.0f;
    for (const int at_once : {4, 8, 16}) EXPECT_LE(share_of_bound(a, b, 3, at_once), 1) << count;
  }
}

TEST(GpuSumError, GrowsByTheParts) {
  EXPECT_GT(gpu_sum_error(256), 2 * step_roundings(256) * 0x1p-24);
  EXPECT_LT(gpu_sum_error(7168), 3 * step_roundings(7168) * 0x1p-24);  // not with the number of products
  for (int n = 1; n < 5000; ++n) EXPECT_LE(gpu_sum_error(n), gpu_sum_error(n + 1));
}

// ---- a layer whose experts compute what those of a GPU would

// What the tests do wrong on purpose.
enum class Fault { none, skips_last_part, forgets_a_step, keeps_wide_rows };

class PlannedExperts final : public Experts {
 public:
  PlannedExperts(const ExpertsOfRank& of, Fault fault)
      : of_(of), fault_(fault), unit_(static_cast<unsigned>(of.rank)) {}

  void take() override { of_.calls.take_rows(); }

  std::int64_t run() override {
    std::vector<TokenSpan> groups;
    for (int group = 0; group < of_.layout.groups; ++group) groups.push_back(of_.buffers.rows_of_group(group));
    const ExpertPlan plan = plan_by_expert(groups, 7);
    const std::size_t steps = plan.steps.size() - (fault_ == Fault::forgets_a_step && !plan.steps.empty() ? 1 : 0);
    for (std::size_t i = 0; i < steps; ++i) run_step(plan, plan.steps[i]);
    return static_cast<std::int64_t>(plan.rows.size());
  }

  ConstTensor results() override {
    return {of_.buffers.expert_rows(), DType::bf16, {of_.buffers.row_capacity(), of_.layer.hidden}};
  }

 private:
  using Values = std::vector<float>;

  // [rows, columns] = in[rows, depth] · matrix[columns, depth]^T
  Values multiply(const Values& in, const Values& matrix, int rows, int columns) {
    const int depth = static_cast<int>(in.size()) / rows;
    Values out(static_cast<std::size_t>(rows * columns), 0.0f);
    for (int at = 0; at < rows * columns; ++at)
      for (const Product& product : products_of(rows, columns, depth))
        for (int part = 0; part < product.batch; ++part) {
          const int first = product.first + part * product.depth;
          if (fault_ == Fault::skips_last_part && first > 0 && first + product.depth == depth) continue;
          const float* const a = &in[static_cast<std::size_t>(at / columns * depth + first)];
          const float* const b = &matrix[static_cast<std::size_t>(at % columns * depth + first)];
          out[static_cast<std::size_t>(at)] += unit_.sum(
              product.depth, [a](int i) { return a[i]; }, [b](int i) { return b[i]; });
        }
    return out;
  }

  // A matrix of the layer in bf16, each of its lines padded with zeros.
  static Values rounded(const float* from, int rows, int columns, int padded) {
    Values values(static_cast<std::size_t>(rows) * static_cast<std::size_t>(padded), 0.0f);
    for (int row = 0; row < rows; ++row)
      round_to_bf16(from + std::int64_t{row} * columns, values.data() + std::int64_t{row} * padded,
                    static_cast<std::size_t>(columns));
    return values;
  }

  void run_step(const ExpertPlan& plan, const ExpertStep& step) {
    const ExpertWeights weights = expert_of_group(of_, step.group);
    const int hidden = of_.layer.hidden, padded = padded_inter(weights.inter);
    const auto width = static_cast<std::size_t>(hidden);
    for (int i = 0; i < step.count; ++i)
      of_.buffers.decode_row(of_.options.format, of_.options.input_scale, step.group,
                             plan.rows[static_cast<std::size_t>(step.first + i)], i);
    Values in(of_.buffers.decoded(), of_.buffers.decoded() + static_cast<std::size_t>(step.count) * width);
    if (fault_ != Fault::keeps_wide_rows) round_to_bf16(in.data(), in.data(), in.size());
    Values gate_up(2 * static_cast<std::size_t>(padded) * width, 0.0f);
    const std::size_t half = static_cast<std::size_t>(weights.inter) * width;
    round_to_bf16(weights.gate_up, gate_up.data(), half);
    round_to_bf16(weights.gate_up + half, gate_up.data() + static_cast<std::size_t>(padded) * width, half);
    const Values activated = activate(multiply(in, gate_up, step.count, 2 * padded), step.count, padded);
    const Values out = multiply(activated, rounded(weights.down, hidden, weights.inter, padded), step.count, hidden);
    to_bf16(out.data(), of_.buffers.expert_rows() + step.result * hidden, out.size());
  }

  static Values activate(const Values& gate_up, int rows, int inter) {
    const std::uint32_t offsets[2] = {0, static_cast<std::uint32_t>(rows)};
    std::vector<Bf16> bits(gate_up.size() / 2);
    SwigluInput in;
    in.rows = ConstTensor(gate_up.data(), DType::f32, {rows, 2 * inter});
    in.row_offsets = ConstTensor(offsets, DType::u32, {2});
    SwigluOutput out;
    out.payload = Tensor(bits.data(), DType::bf16, {rows, inter});
    swiglu(format_named("bf16"), in, out);
    Values values(bits.size());
    from_bf16(bits.data(), values.data(), values.size());
    return values;
  }

  const ExpertsOfRank of_;
  Fault fault_;
  MatrixUnit unit_;
};

class PlannedPlace final : public ExpertPlace {
 public:
  explicit PlannedPlace(Fault fault = Fault::none) : fault_(fault) {}
  const char* name() const override { return "gpu"; }
  const char* where() const override { return "the GPUs"; }
  void require(const Backend&) const override {}
  ExpertErrors errors() const override { return gpu_experts().errors(); }
  ExpertMemory memory(const Layer& layer, const LayerOptions& options) const override {
    return gpu_experts().memory(layer, options);
  }
  std::unique_ptr<Experts> make(const ExpertsOfRank& of) const override {
    return std::make_unique<PlannedExperts>(of, fault_);
  }

 private:
  Fault fault_;
};

CheckResult check(const LayerArrays& arrays, const LayerOptions& options) {
  std::vector<float> output(arrays.output_size());
  run_layer(choose_backend("cpu").make(options.ranks), arrays.layer(), options, output.data());
  return check_layer(arrays.layer(), options, output.data(), OracleTokens::as_sent);
}

TEST(PlannedExperts, StayWithinTheBoundInRandomShapes) {
  const PlannedPlace place;
  std::mt19937 random(4);
  const auto up_to = [&](int most) { return 1 + static_cast<int>(random() % static_cast<unsigned>(most)); };
  for (unsigned trial = 0; trial < 30; ++trial) {
    LayerSizes sizes{up_to(20), 32 * up_to(20), 4 + up_to(5), up_to(4), up_to(90), 0};
    if (trial % 3 == 0) sizes.shared_inter = up_to(70);
    LayerOptions options{.ranks = up_to(4), .format = all_formats()[trial % all_formats().size()], .experts = &place};
    options.reduction = trial % 2 == 0 ? Reduction::by_rank : Reduction::exact;
    if (trial % 4 == 1) options.rows = RowOrder::padded;
    options.input_scale = 3;
    const CheckResult result = check(LayerArrays(sizes, trial), options);
    EXPECT_TRUE(result.ok) << "trial " << trial << ", " << options.format.name() << ": " << result.worst_share;
  }
}

// Gates far below 0, where a GPU's sigmoid gives 0, and sums of one sign.
TEST(PlannedExperts, StayWithinTheBoundAtTheEnds) {
  const PlannedPlace place;
  LayerArrays arrays({.tokens = 9, .hidden = 320, .experts = 5}, 5);
  for (float& value : arrays.gate_up) value *= 40;
  EXPECT_TRUE(check(arrays, {.ranks = 2, .experts = &place}).ok);
  for (auto* values : {&arrays.x, &arrays.gate_up, &arrays.down}) std::fill(values->begin(), values->end(), 0.1f);
  EXPECT_TRUE(check(arrays, {.ranks = 2, .experts = &place}).ok);
}

TEST(PlannedExperts, AreFoundWhereTheyAreWrong) {
  const LayerArrays arrays({.tokens = 20, .hidden = 320}, 6);
  for (const Fault fault : {Fault::skips_last_part, Fault::forgets_a_step}) {
    const PlannedPlace place(fault);
    EXPECT_FALSE(check(arrays, {.ranks = 2, .experts = &place}).ok) << static_cast<int>(fault);
  }
}

// The oracle rounds decoded rows as these experts do, so the bound need not: without the rounding there is more error.
TEST(PlannedExperts, SeeRowsThatTheOracleSees) {
  const LayerArrays arrays({.tokens = 20, .hidden = 320}, 7);
  const PlannedPlace right, wide(Fault::keeps_wide_rows);
  const LayerOptions options{.ranks = 2, .format = format_named("fp8_block128"), .experts = &right};
  LayerOptions with_wide = options;
  with_wide.experts = &wide;
  EXPECT_LT(check(arrays, options).rms_error, check(arrays, with_wide).rms_error);
}

TEST(ExpertPlaces, AreNamed) {
  EXPECT_EQ(expert_place_names(), (std::vector<std::string>{"cpu", "gpu"}));
  EXPECT_EQ(&expert_place_named("gpu"), &gpu_experts());
  EXPECT_THROW(expert_place_named("tpu"), Error);
  EXPECT_EQ(LayerOptions{}.experts, &cpu_experts());
  EXPECT_NO_THROW(cpu_experts().require(backend_named("cpu")));
}

}  // namespace
}  // namespace ferry::app
