#include "conformance/rounds/combinations.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "conformance/oracle/size.h"
#include "conformance/rounds/handle_sequence.h"

namespace ferry::conformance {
namespace {

using test::Random;
using test::size;

constexpr RowOrders kAllOrders{RowOrder::by_expert, RowOrder::by_source, RowOrder::padded, RowOrder::in_place};

std::vector<std::string> names_of(const std::vector<AnyFormat>& formats) {
  std::vector<std::string> names;
  for (const AnyFormat& format : formats) names.emplace_back(format.name());
  return names;
}

template <class Formats>
std::vector<AnyFormat> list_of(const Formats& formats) {
  return {std::begin(formats), std::end(formats)};
}

bool set_format(int choice, Combination& to) {
  to.settings.options.format = list_of(all_formats())[size(choice)];
  if (to.settings.options.format.name() == std::string("nvfp4")) to.settings.input_scale = 37.5f;
  return true;
}

bool set_results(int choice, Combination& to) {
  to.settings.options.result_format = list_of(result_formats())[size(choice)];
  return true;
}

bool set_order(int choice, Combination& to) {
  using enum RowOrder;
  static const std::vector<RowOrder> orders[] = {
      {by_expert}, {by_source}, {padded}, {in_place}, {by_source, padded, in_place}};
  to.settings.row_orders = orders[choice];
  if (to.settings.row_orders[0] == by_source) to.settings.options.row_orders = kAllOrders;
  return true;
}

bool may_be_by_source(const Combination& c) { return c.settings.options.row_orders.has(RowOrder::by_source); }
bool has_order(const Combination& c, RowOrder order) {
  return std::ranges::find(c.settings.row_orders, order) != c.settings.row_orders.end();
}
bool is_exact(const Combination& c) { return reduction_of(c.settings) == Reduction::exact; }

// A row of by_source is a sum already.
bool set_reduction(int choice, Combination& to) {
  enum { kByRank, kExact, kEitherByRank, kEitherExact };
  to.settings.options.reduction = choice == kByRank  ? Reduction::by_rank
                                  : choice == kExact ? Reduction::exact
                                                     : Reduction::either;
  to.settings.chosen = choice == kEitherExact ? Reduction::exact : Reduction::by_rank;
  return !(is_exact(to) && (choice == kExact ? may_be_by_source(to) : has_order(to, RowOrder::by_source)));
}

// exact takes its weights at combine; they neither travel nor come late.
bool set_weights(int choice, Combination& to) {
  enum { kNone, kArray, kNarrow, kHook, kLate, kEither, kHome, kNotApplied };
  ScenarioSettings& s = to.settings;
  s.weights = choice == kNone ? WeightForm::none : choice == kHook ? WeightForm::hook : WeightForm::array;
  if (choice == kNarrow) s.weight_dtype = DType::bf16;
  if (choice == kLate || choice == kEither) {
    s.options.late_weights = true;
    s.weights_at = choice == kLate ? WeightsAt::combine : WeightsAt::either;
  }
  s.options.returns_weights = choice == kHome;
  s.applies_weights = choice != kNotApplied;
  if (s.options.late_weights && s.options.reduction != Reduction::by_rank) return false;
  return !(is_exact(to) && choice == kNotApplied);
}

bool set_calls(int choice, Combination& to) {
  to.calls = static_cast<Calls>(choice);
  return true;
}

bool set_tokens(int choice, Combination& to) {
  enum { kBf16, kF16, kF32, kSomeEncoded, kAllEncoded };
  to.settings.token_dtype = choice == kF16 ? DType::f16 : choice == kF32 ? DType::f32 : DType::bf16;
  if (choice == kSomeEncoded) to.settings.encoded = Encoded::odd_ranks;
  if (choice == kAllEncoded) to.settings.encoded = Encoded::all;
  return true;
}

bool set_sums(int choice, Combination& to) {
  enum { kBf16, kF32, kF16, kEpilogue, kUnreduced };
  ScenarioSettings& s = to.settings;
  if (choice == kF32) s.row_dtype = s.output_dtype = s.bias_dtype = DType::f32;
  if (choice == kF16) s.row_dtype = s.output_dtype = s.bias_dtype = DType::f16;
  s.num_bias = choice == kF32 ? 1 : choice == kF16 ? 2 : 0;
  if (choice == kF32 && !is_exact(to)) s.sum_order = SumOrder::by_last_k;
  s.epilogue = choice == kEpilogue;
  s.unreduced = choice == kUnreduced;
  return !(s.unreduced && (!is_exact(to) || s.weights != WeightForm::none));
}

bool set_outputs(int choice, Combination& to) {
  enum { kUsual, kAll, kFew, kCleared, kWithoutRoom };
  ScenarioSettings& s = to.settings;
  s.more_outputs = choice == kAll || choice == kWithoutRoom;
  if (choice == kAll) s.scale_form = ScaleForm::rows;
  if (choice == kFew) s.left_out = {true, true, true};
  if (choice == kCleared) s.zero_padding = true;
  if (choice == kWithoutRoom) {
    s.overflow = Overflow::expected;
    s.room_percent = 60;
    s.spare_rows = 0;
    if (has_order(to, RowOrder::padded)) s.expert_stride = 3;
  }
  if (choice == kCleared && has_order(to, RowOrder::in_place)) return false;  // no row is written there
  return !(s.expert_stride != 0 && to.calls != Calls::round);                 // such a dispatch leaves no handle
}

// How the rows of an expert lie beside each other, and their scales.
bool set_rows(int choice, Combination& to) {
  enum { kOfFormat, kAligned, kAlignedMost, kTiled };
  to.settings.options.expert_alignment = choice == kAligned ? 16 : choice == kAlignedMost ? 128 : 0;
  to.settings.options.tiled_scales = choice == kTiled;
  return choice != kTiled || to.settings.options.format.name() == std::string("mxfp8");
}

// Its rows are a group before those of the experts. All of it must fit, which only a stride makes sure of here.
bool set_shared(int choice, Combination& to) {
  ScenarioSettings& s = to.settings;
  s.options.fused_shared_expert = choice == 1;
  if (choice == 0) return true;
  if (s.options.skip_a2a) s.options.allreduce_world_size = s.shape.ranks;
  if (s.expert_stride != 0) s.expert_stride = s.shape.max_tokens;
  if (s.overflow != Overflow::refused && s.expert_stride == 0) return false;
  return !(may_be_by_source(to) || has_order(to, RowOrder::in_place) || s.unreduced);
}

bool set_world(int choice, Combination& to) {
  enum { kAll, kReplicated, kOneMasked, kTwoFormats };
  ScenarioSettings& s = to.settings;
  s.options.skip_a2a = choice == kReplicated;
  if (choice == kOneMasked) s.options.mask = {false, true, false};
  if (choice == kTwoFormats) {
    s.options.more_formats.resize(1);
    s.options.more_formats[0].format = format_named("fp8_block128");
    s.format = 1;
  }
  return true;
}

bool set_form(int choice, Combination& to) {
  to.form = choice == 0 ? Form::split : Form::one_call;
  return true;
}

bool set_handle(int choice, Combination& to) {
  to.settings.options.short_handles = choice == 1;
  return true;
}

int count_of(std::size_t axis) { return static_cast<int>(axes()[axis].names.size()); }

using Key = std::array<int, 4>;
Key key_of(const Pair& p) {
  return {static_cast<int>(p.first_axis), static_cast<int>(p.second_axis), p.first, p.second};
}

std::vector<Pair> all_pairs() {
  std::vector<Pair> pairs;
  for (std::size_t a = 0; a < kAxes; ++a)
    for (std::size_t b = a + 1; b < kAxes; ++b)
      for (int i = 0; i < count_of(a); ++i)
        for (int j = 0; j < count_of(b); ++j) pairs.push_back({a, b, i, j});
  return pairs;
}

// Choices with this pair that go together, of some that are drawn those with the most pairs that are missing.
std::optional<Choices> best_with(const Pair& pair, const std::set<Key>& missing, Random& random) {
  std::optional<Choices> best;
  std::size_t most = 0;
  for (int tries = 0, good = 0; tries < 1000 && good < 12; ++tries) {
    Choices choices{};
    for (std::size_t axis = 0; axis < kAxes; ++axis) choices[axis] = random.below(count_of(axis));
    choices[pair.first_axis] = pair.first;
    choices[pair.second_axis] = pair.second;
    if (!combination_of(choices)) continue;
    ++good;
    std::size_t count = 0;
    for (std::size_t a = 0; a < kAxes; ++a)
      for (std::size_t b = a + 1; b < kAxes; ++b) count += missing.count(key_of({a, b, choices[a], choices[b]}));
    if (best && count <= most) continue;
    best = choices;
    most = count;
  }
  return best;
}

void note(const Choices& choices, std::set<Key>& missing) {
  for (std::size_t a = 0; a < kAxes; ++a)
    for (std::size_t b = a + 1; b < kAxes; ++b) missing.erase(key_of({a, b, choices[a], choices[b]}));
}

// One rank's calls.
void play(Exchange& exchange, const Combination& c, const Scenario& first) {
  HandleMemory handle(exchange, first);
  RankRound kept(first, exchange.rank());
  if (c.calls != Calls::round) kept.out.handle = handle.tensor();
  run_dispatch(exchange, kept, c.form);
  kept.check_rows();
  if (c.calls == Calls::round) {
    run_combine(exchange, kept, c.form);
    kept.check_tokens();
    return;
  }
  const Scenario other = c.calls == Calls::replay ? with_other_tokens(first, c.settings, 77) : first;
  RankRound round(other, exchange.rank());
  if (c.calls == Calls::replay) {
    round.in = input_with(round, handle);
    run_dispatch(exchange, round, c.form);
    round.check_rows();
  } else {
    ScenarioSettings settings = c.settings;
    settings.routing = "uniform";
    run_round(exchange, make_scenario(settings), c.form);
    round.combine_in.src_info = {};  // no dispatch of this round has filled it
  }
  round.combine_in = combine_input_with(round, handle);
  run_combine(exchange, round, c.form);
  round.check_tokens();
}

}  // namespace

const std::array<Axis, kAxes>& axes() {
  static const std::array<Axis, kAxes> all = {{
      {names_of(list_of(all_formats())), set_format},
      {names_of(list_of(result_formats())), set_results},
      {{"by_expert", "by_source", "padded", "in_place", "of each rank"}, set_order},
      {{"by_rank", "exact", "either by_rank", "either exact"}, set_reduction},
      {{"none", "f32", "bf16", "hook", "late", "late or not", "home", "not applied"}, set_weights},
      {{"round", "replay", "late combine"}, set_calls},
      {{"split", "whole"}, set_form},
      {{"all ranks", "skip_a2a", "a masked rank", "two formats"}, set_world},
      {{"bf16", "f16", "f32", "encoded on odd ranks", "encoded"}, set_tokens},
      {{"bf16", "f32", "f16", "epilogue", "unreduced"}, set_sums},
      {{"usual", "all", "few", "cleared", "without room"}, set_outputs},
      {{"of the format", "aligned to 16", "aligned to 128", "tiled scales"}, set_rows},
      {{"no shared expert", "shared expert"}, set_shared},
      {{"whole handle", "short handle"}, set_handle},
  }};
  return all;
}

std::string to_string(const Pair& pair) {
  return axes()[pair.first_axis].names[size(pair.first)] + " with " + axes()[pair.second_axis].names[size(pair.second)];
}

std::optional<Combination> combination_of(const Choices& choices) {
  Combination c;
  c.settings.shape = {.ranks = 3, .experts = 8, .top_k = 4, .max_tokens = 10, .hidden = 128};
  c.settings.options = options_for("bf16");
  c.settings.routing = "ragged";
  c.settings.seed = 91;
  for (std::size_t axis = 0; axis < kAxes; ++axis)
    if (!axes()[axis].set(choices[axis], c)) return {};
  return c;
}

std::vector<Choices> pairwise_choices(std::vector<Pair>* impossible) {
  std::vector<Choices> list;
  const std::vector<Pair> pairs = all_pairs();
  std::set<Key> missing;
  for (const Pair& pair : pairs) missing.insert(key_of(pair));
  Random random(17);
  for (const Pair& pair : pairs) {
    if (missing.count(key_of(pair)) == 0) continue;
    if (const std::optional<Choices> choices = best_with(pair, missing, random)) {
      list.push_back(*choices);
      note(*choices, missing);
    } else if (impossible != nullptr) {
      impossible->push_back(pair);
    }
  }
  return list;
}

std::vector<Choices> product_choices(int format) {
  std::vector<Choices> list;
  Random random(100 + size(format));
  Choices choices{};
  choices[0] = format;
  const auto draw = [&] {
    for (int tries = 0; tries < 200; ++tries) {
      for (std::size_t axis = kMainAxes; axis < kAxes; ++axis) choices[axis] = random.below(count_of(axis));
      if (combination_of(choices)) return list.push_back(choices);
    }
  };
  for (std::size_t axis = 1; axis < kMainAxes;) {  // the next number, its first digit that of axis 1
    if (axis == 1) draw();
    if (++choices[axis] < count_of(axis)) {
      axis = 1;
    } else {
      choices[axis] = 0;
      ++axis;
    }
  }
  return list;
}

void run_combination(const Target& target, const Combination& wanted) {
  Combination c = wanted;
  c.settings = fitted(target, wanted.settings);
  const Scenario scenario = make_scenario(c.settings);
  on_ranks(target, c.settings.shape.ranks, describe(c.settings), [&](World& world) {
    if (test::is_masked_out(scenario.round, world.rank())) return;
    require_orders(world, c.settings);
    require_settings(world, c.settings);
    if (c.calls != Calls::round && !world.capabilities().handles)
      throw Skipped("the exchanges of this world have no handles");
    Exchange exchange(world, c.settings.shape, exchange_options(c.settings));
    play(exchange, c, scenario);
  });
}

}  // namespace ferry::conformance
