// Fills a scenario with numbers: tokens over several magnitudes, weights of either sign, and an expert output that
// depends on the token, the k and the column, so that no two rows can be mistaken for each other.
#include "conformance/rounds/scenario.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "conformance/oracle/size.h"

namespace ferry::conformance {
namespace {

using test::Random;
using test::size;

// A finite value of either sign, between 2^-6 and 2^6 in magnitude, one in 32 a zero.
float random_value(Random& random) {
  const std::uint64_t bits = random.bits();
  const float sign = (bits & 1) != 0 ? -1.0f : 1.0f;
  if ((bits >> 1 & 31) == 0) return sign * 0.0f;
  const int exponent = static_cast<int>(bits >> 8 & 0xff) % 12 - 6;
  return sign * std::ldexp(1.0f + static_cast<float>(bits >> 40) * 0x1p-24f, exponent);
}

void append(std::vector<std::byte>& bytes, DType dtype, float value) {
  std::byte raw[4];
  if (dtype == DType::f32) {
    std::memcpy(raw, &value, 4);
  } else {
    const std::uint16_t bits = dtype == DType::f16 ? test::to_f16(value) : test::to_bf16(value);
    std::memcpy(raw, &bits, 2);
  }
  bytes.insert(bytes.end(), raw, raw + size_of(dtype));
}

// The value as a tensor of this dtype holds it.
float held_in(DType dtype, float value) {
  if (dtype == DType::f32) return value;
  return dtype == DType::f16 ? test::from_f16(test::to_f16(value)) : test::from_bf16(test::to_bf16(value));
}

// Not finite, too large for float16 or for a sum of float32, and the smallest.
float extreme_value(Random& random) {
  const float sign = random.chance(0.5) ? -1.0f : 1.0f;
  constexpr float kValues[] = {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 6e4f,
                               3e38f, 0x1p-140f};
  return sign * kValues[random.below(static_cast<int>(std::size(kValues)))];
}

void fill_tokens(const ScenarioSettings& settings, Random& random, test::RankInput& in) {
  in.tokens.clear();
  in.token_dtype = settings.token_dtype;
  for (int i = 0; i < in.num_tokens * settings.shape.hidden; ++i)
    append(in.tokens, in.token_dtype, random_value(random));
}

void fill_bias(const ScenarioSettings& settings, Random& random, test::RankInput& in) {
  in.bias.assign(size(settings.num_bias), {});
  for (std::vector<float>& bias : in.bias)
    for (int i = 0; i < in.num_tokens * settings.shape.hidden; ++i)
      bias.push_back(held_in(settings.bias_dtype, random_value(random)));
}

test::RankInput make_input(const ScenarioSettings& settings, test::RankRouting routing, Random& random) {
  test::RankInput in;
  in.num_tokens = routing.num_tokens;
  in.topk_ids = std::move(routing.topk_ids);
  fill_tokens(settings, random, in);
  if (settings.weights != WeightForm::none)
    for (std::size_t i = 0; i < in.topk_ids.size(); ++i)
      in.weights.push_back(held_in(settings.weight_dtype, random_value(random)));
  for (std::size_t i = 0; settings.extremes && i < in.weights.size(); i += 7) in.weights[i] = extreme_value(random);
  fill_bias(settings, random, in);
  for (int expert = 0; settings.by_counts && expert < settings.shape.experts; ++expert)
    in.expert_counts.push_back(random.below(1000));
  return in;
}

// A row of usual values; of usual values and an extreme one; or of values that are all too large for float16.
class RowKind {
 public:
  RowKind(bool extremes, Random& random, int hidden) {
    if (!extremes || random.chance(0.4)) return;
    column_ = random.below(hidden);
    extreme_ = extreme_value(random);
    scale_ = random.chance(0.4) ? 6e4f / 64.0f : 1.0f;
  }
  float value(int column, Random& random) const { return column == column_ ? extreme_ : scale_ * random_value(random); }

 private:
  int column_ = -1;
  float extreme_ = 0.0f, scale_ = 1.0f;
};

std::vector<float> make_expert_output(const Scenario& scenario, int rank) {
  const int hidden = scenario.round.shape.hidden;
  const DType row_dtype = settings_at(scenario.settings, rank).row_dtype;
  std::vector<float> out;
  const std::vector<test::RowOrigin>& rows = scenario.rows[size(rank)].rows;
  for (std::size_t index = 0; index < rows.size(); ++index) {
    const test::RowOrigin& row = rows[index];
    if (index >= size(scenario.row_capacity[size(rank)])) {
      out.resize(out.size() + size(hidden), 0.0f);  // it had no room
      continue;
    }
    Random random(scenario.settings.seed * 31 + size((std::int64_t{row.source} * 100'000 + row.token) * 64 + row.k));
    const RowKind kind(scenario.settings.extremes, random, hidden);
    for (int column = 0; column < hidden; ++column) {
      const float value = kind.value(column, random);
      if (test::is_padding(row))
        out.push_back(std::numeric_limits<float>::quiet_NaN());
      else
        out.push_back(held_in(row_dtype, value));
    }
  }
  return out;
}

std::vector<float> make_row_weights(const Scenario& scenario, int rank) {
  const ScenarioSettings& settings = scenario.settings;
  std::vector<float> weights;
  if (!settings.options.returns_weights || (settings.odd_ranks_return_none && rank % 2 == 1)) return weights;
  const bool by_source = scenario.round.ranks[size(rank)].row_order == RowOrder::by_source;
  Random random(settings.seed * 131 + size(rank));
  for (const test::RowOrigin& row : scenario.rows[size(rank)].rows)
    for (int k = 0; k < (by_source ? settings.shape.top_k : 1); ++k) {
      const float value = random_value(random);
      const bool is_read = !test::is_padding(row) && (by_source || row.k < settings.shape.top_k);
      weights.push_back(is_read ? value : std::numeric_limits<float>::quiet_NaN());
    }
  return weights;
}

// skip_a2a: tokens are replicated, so every rank gives the same: what the rank with the most tokens gives.
void replicate_most(test::Round& round) {
  const test::RankInput most =
      *std::max_element(round.ranks.begin(), round.ranks.end(),
                        [](const test::RankInput& a, const test::RankInput& b) { return a.num_tokens < b.num_tokens; });
  for (test::RankInput& in : round.ranks) in = most;
}

void set_row_orders(const ScenarioSettings& settings, test::Round& round) {
  for (std::size_t rank = 0; rank < round.ranks.size(); ++rank) {
    const auto& orders = settings.row_orders;
    round.ranks[rank].row_order = orders.empty() ? RowOrder::by_expert : orders[rank % orders.size()];
    round.ranks[rank].expert_stride = settings.expert_stride;
  }
}

void set_late_weights(const ScenarioSettings& settings, test::Round& round) {
  for (std::size_t rank = 0; rank < round.ranks.size(); ++rank) {
    test::RankInput& in = round.ranks[rank];
    in.weights_are_late =
        settings.options.reduction == Reduction::by_rank && in.row_order != RowOrder::by_source &&
        (settings.weights_at == WeightsAt::combine || (settings.weights_at == WeightsAt::either && rank % 2 == 1));
  }
}

// What calls say, beside their tensors.
void set_call(const ScenarioSettings& settings, test::Round& round) {
  round.reduction = reduction_of(settings);
  round.input_scale = settings.input_scale;
  round.zero_padding = settings.zero_padding;
  round.gone = settings.gone;
  round.sum_order = settings.sum_order;
  round.applies_weights = settings.applies_weights;
}

// What must come of the round.
void fill_outcome(Scenario& scenario) {
  if (scenario.settings.options.skip_a2a) replicate_most(scenario.round);
  set_row_orders(scenario.settings, scenario.round);
  set_late_weights(scenario.settings, scenario.round);
  for (int rank = 0; rank < scenario.settings.shape.ranks; ++rank) {
    const ScenarioSettings settings = settings_at(scenario.settings, rank);
    scenario.round.zero_padding = settings.zero_padding;
    std::int64_t capacity = test::worst_row_capacity(scenario.round, rank) + settings.spare_rows;
    const bool takes_part = !test::is_masked_out(scenario.round, rank) && !test::is_gone(scenario.round, rank);
    const bool is_padded = scenario.round.ranks[size(rank)].row_order == RowOrder::padded;
    const auto expected = [&] { return test::expected_rows(scenario.round, rank, capacity, kPoison); };
    if (takes_part && settings.exact_rows && !is_padded) capacity = static_cast<std::int64_t>(expected().rows.size());
    if (takes_part && settings.overflow != Overflow::refused && !is_padded)
      capacity = static_cast<std::int64_t>(expected().rows.size()) * settings.room_percent / 100;
    scenario.row_capacity.push_back(capacity);
    scenario.rows.push_back(takes_part ? expected() : test::ExpectedRows{});
    scenario.expert_output.push_back(make_expert_output(scenario, rank));
    scenario.row_weights.push_back(make_row_weights(scenario, rank));
  }
}

}  // namespace

ExchangeOptions options_for(const char* format, Reduction reduction) {
  ExchangeOptions options;
  options.format = format_named(format);
  options.reduction = reduction;
  options.deadline = kSuiteDeadline;
  return options;
}

namespace {

// A format that looks at no byte, for rows of this one.
template <class Options>
void use_bytes(Options& options, int hidden) {
  const AnyFormat& format = options.format;
  if (options.expert_alignment == 0) options.expert_alignment = format.alignment();
  options.format = bytes_format({.payload_bytes = static_cast<std::int64_t>(format.payload_bytes(hidden)),
                                 .scales_per_row = scales_per_row(format, hidden),
                                 .scale_bytes = format.scale_bytes(),
                                 .scale_layout = options.tiled_scales ? ScaleLayout::tiled : format.scale_layout()});
  options.tiled_scales = false;
}

}  // namespace

ExchangeOptions exchange_options(const ScenarioSettings& settings) {
  ExchangeOptions options = options_in(settings.options, settings.format);
  if (!settings.as_bytes) return options;
  use_bytes(options, settings.shape.hidden);
  for (DispatchFormat& other : options.more_formats) use_bytes(other, settings.shape.hidden);
  return options;
}

Reduction reduction_of(const ScenarioSettings& settings) {
  return settings.options.reduction == Reduction::either ? settings.chosen : settings.options.reduction;
}

Scenario combined_as(Scenario scenario, Reduction reduction) {
  scenario.settings.chosen = scenario.round.reduction = reduction;
  return scenario;
}

ScenarioSettings settings_at(const ScenarioSettings& settings, int rank) {
  ScenarioSettings own = settings;
  if (!settings.each_its_own) return own;
  const int of_three = rank % 3;
  const bool is_odd = rank % 2 == 1, sums = settings.options.reduction == Reduction::by_rank;
  own.options.deadline += std::chrono::seconds(rank);
  own.options.set_up_deadline = std::chrono::seconds(40 + rank);
  own.options.workers = 1 + of_three;
  own.options.short_handles = is_odd;
  own.token_dtype = of_three == 0 ? DType::bf16 : of_three == 1 ? DType::f32 : DType::f16;
  own.id_dtype = is_odd ? DType::i64 : DType::i32;
  own.row_dtype = of_three == 0 ? DType::f32 : DType::bf16;
  own.output_dtype = of_three == 1 ? DType::f32 : DType::bf16;
  own.global_scale_dtype = of_three == 2 ? DType::bf16 : DType::f32;
  own.num_bias = of_three;
  own.bias_dtype = is_odd ? DType::f32 : DType::bf16;
  own.weights = of_three == 2 ? WeightForm::none : settings.weights;
  own.weight_dtype = is_odd ? settings.weight_dtype : DType::f32;
  own.sum_order = sums && is_odd ? SumOrder::by_last_k : SumOrder::by_rank;
  own.token_gap = own.output_gap = 8 * of_three;
  own.row_gap = is_odd ? 0 : 16;
  own.spare_rows += rank;
  own.max_blocks = is_odd ? 3 : 0;
  own.more_outputs = settings.more_outputs && is_odd;
  own.zero_padding = settings.more_outputs && is_odd;
  own.left_out = {.row_offsets = is_odd, .expert_ids = !is_odd, .src_info = of_three == 2};
  own.overflow = of_three == 2 ? settings.overflow : Overflow::refused;
  return own;
}

Scenario make_scenario(const ScenarioSettings& settings) {
  Scenario scenario;
  scenario.settings = settings;
  scenario.round.shape = settings.shape;
  scenario.round.options = settings.options;
  set_call(settings, scenario.round);
  Random random(settings.seed);
  for (test::RankRouting& routing : test::make_routing(settings.routing, settings.shape, random)) {
    const auto rank = static_cast<int>(scenario.round.ranks.size());
    scenario.round.ranks.push_back(make_input(settings_at(settings, rank), std::move(routing), random));
  }
  fill_outcome(scenario);
  return scenario;
}

Scenario with_other_tokens(const Scenario& given, ScenarioSettings settings, std::uint64_t seed) {
  settings.seed = seed;
  Scenario scenario;
  scenario.settings = settings;
  scenario.round = given.round;
  scenario.round.shape = settings.shape;
  scenario.round.options = settings.options;
  set_call(settings, scenario.round);
  Random random(seed);
  for (std::size_t rank = 0; rank < scenario.round.ranks.size(); ++rank) {
    const ScenarioSettings own = settings_at(settings, static_cast<int>(rank));
    fill_tokens(own, random, scenario.round.ranks[rank]);
    fill_bias(own, random, scenario.round.ranks[rank]);
  }
  fill_outcome(scenario);
  return scenario;
}

Scenario with_same_tokens(Scenario scenario) {
  scenario.row_capacity.clear();
  scenario.rows.clear();
  scenario.expert_output.clear();
  scenario.row_weights.clear();
  fill_outcome(scenario);
  return scenario;
}

Scenario with_other_weights(const Scenario& given, std::uint64_t seed) {
  Scenario scenario = given;
  Random random(seed);
  for (std::size_t rank = 1; rank < scenario.round.ranks.size(); rank += 2)
    for (float& weight : scenario.round.ranks[rank].weights)
      weight = held_in(scenario.settings.weight_dtype, random_value(random));
  return with_same_tokens(std::move(scenario));
}

namespace {

std::string orders_of(const ScenarioSettings& s) {
  std::string text;
  for (const RowOrder order : s.row_orders) text += std::string(text.empty() ? "" : ",") + to_string(order);
  return text.empty() ? "by_expert" : text;
}

}  // namespace

std::string describe(const ScenarioSettings& s) {
  return to_string(s.shape) + " format=" + s.options.format.name() + " reduction=" + to_string(s.options.reduction) +
         (s.options.reduction == Reduction::either ? std::string(",") + to_string(s.chosen) : "") +
         " results=" + s.options.result_format.name() + " alignment=" + std::to_string(s.options.expert_alignment) +
         " tiled=" + std::to_string(s.options.tiled_scales) + " of_formats=" + std::to_string(s.format) + "/" +
         std::to_string(s.options.more_formats.size() + 1) +
         " shared=" + std::to_string(s.options.fused_shared_expert) + " orders=" + orders_of(s) +
         " skip_a2a=" + std::to_string(s.options.skip_a2a) + " workers=" + std::to_string(s.options.workers) +
         " tokens=" + to_string(s.token_dtype) + " rows=" + to_string(s.row_dtype) +
         " output=" + to_string(s.output_dtype) + " bias=" + std::to_string(s.num_bias) +
         " weights=" + to_string(s.weight_dtype) +
         (s.weights_at == WeightsAt::dispatch  ? ""
          : s.weights_at == WeightsAt::combine ? ",late"
                                               : ",late or not") +
         (s.sum_order == SumOrder::by_last_k ? " by_last_k" : "") + (s.applies_weights ? "" : " unweighted") +
         (s.extremes ? " extremes" : "") + (s.each_its_own ? " each_its_own" : "") +
         (s.more_outputs ? " more_outputs" : "") + (s.left_out.row_offsets ? " no_row_offsets" : "") +
         (s.left_out.expert_ids ? " no_expert_ids" : "") + (s.left_out.src_info ? " no_src_info" : "") +
         (s.zero_padding ? " zero_padding" : "") + " scale_form=" + std::to_string(static_cast<int>(s.scale_form)) +
         " overflow=" + to_string(s.overflow) + " room=" + std::to_string(s.room_percent) +
         " stride=" + std::to_string(s.expert_stride) + " routing=" + s.routing + " seed=" + std::to_string(s.seed);
}

}  // namespace ferry::conformance
