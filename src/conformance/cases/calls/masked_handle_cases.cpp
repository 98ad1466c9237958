// Cases over handles from before a mask grew: results of a rank that left count as zeros, rows of its tokens are
// padding in a dispatch with the handle, and all else is where it was. Ranks leave one after the other.
#include <deque>
#include <set>
#include <utility>

#include "conformance/cases/cases.h"
#include "conformance/rounds/handle_sequence.h"

namespace ferry::conformance {
namespace {

constexpr Shape kShape{.ranks = 4, .experts = 10, .top_k = 8, .max_tokens = 9, .hidden = 64};
constexpr RowOrders kAllOrders{RowOrder::by_expert, RowOrder::by_source, RowOrder::padded, RowOrder::in_place};

ScenarioSettings settings_for(const char* format, RowOrder order, Reduction reduction = Reduction::by_rank) {
  ScenarioSettings settings;
  settings.shape = kShape;
  settings.options = options_for(format, reduction);
  settings.options.expert_alignment = 4;
  if (order == RowOrder::by_source) settings.options.row_orders = kAllOrders;
  settings.row_orders = {order};
  settings.routing = "ragged";
  settings.seed = 71;
  return settings;
}

// The ranks that leave, in this order. Ranks with larger and smaller numbers stay.
std::vector<int> leaving(const Shape& shape) { return shape.ranks == 4 ? std::vector{2, 0} : std::vector{1}; }

// The first `count` of them.
RankMask first_gone(const Shape& shape, std::size_t count) {
  RankMask mask(static_cast<std::size_t>(shape.ranks));
  for (std::size_t i = 0; i < count; ++i) mask[static_cast<std::size_t>(leaving(shape)[i])] = true;
  return mask;
}

// A routing that a handle keeps: of a dispatch that came when `masked` ranks had left.
struct KeptScenario {
  std::size_t masked;
  Scenario first;
};

// What calls with its handle give when `gone` ranks have left, with other tokens.
Scenario when_gone(const KeptScenario& kept, std::size_t gone, std::uint64_t seed) {
  ScenarioSettings settings = kept.first.settings;
  settings.gone = first_gone(settings.shape, gone);
  for (std::size_t rank = 0; rank < settings.gone.size(); ++rank)
    if (is_masked(settings.options.mask, static_cast<int>(rank))) settings.gone[rank] = false;
  return with_other_tokens(kept.first, settings, seed);
}

// All that is called when so many ranks have left: the dispatches that leave handles come first.
struct Stage {
  std::vector<KeptScenario> kept;  // of this stage and those before
  std::size_t fresh = 0;           // those before
  std::vector<Scenario> given;     // of each, as it is by now
  std::vector<Scenario> again;     // the same with other tokens
  std::vector<Scenario> anew;      // `again` with other weights on odd ranks
};

std::vector<Stage> stages_of(const ScenarioSettings& settings) {
  std::vector<Stage> stages;
  for (std::size_t gone = 0; gone <= leaving(settings.shape).size(); ++gone) {
    Stage stage;
    if (gone != 0) stage.kept = stages.back().kept;
    stage.fresh = stage.kept.size();
    for (const char* routing : {"ragged", "uniform"}) {
      ScenarioSettings of_stage = settings;
      of_stage.options.mask = first_gone(settings.shape, gone);
      of_stage.routing = gone == 0 ? routing : settings.routing;
      of_stage.seed = settings.seed + 10 * gone + stage.kept.size();
      stage.kept.push_back({gone, make_scenario(of_stage)});
      if (gone != 0) break;
    }
    for (std::size_t i = 0; i < stage.kept.size(); ++i) {
      stage.given.push_back(when_gone(stage.kept[i], gone, 100 + i));
      stage.again.push_back(when_gone(stage.kept[i], gone, 200 + i));
      stage.anew.push_back(with_other_weights(stage.again.back(), 300 + i));
    }
    stages.push_back(std::move(stage));
  }
  return stages;
}

// Entries of a rank's tokens that name masked ranks. By counts a token names a rank once, whatever its experts are.
std::uint64_t dropped_in(const Scenario& scenario, int rank) {
  const std::vector<std::int64_t>& ids = scenario.round.ranks[static_cast<std::size_t>(rank)].topk_ids;
  const auto top_k = static_cast<std::size_t>(scenario.round.shape.top_k);
  std::set<std::pair<std::size_t, int>> named;  // which entry, or token, and the rank
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const int owner = ids[i] < 0 ? -1 : owner_of(scenario.round.shape, static_cast<int>(ids[i]));
    if (owner >= 0 && is_masked(scenario.settings.options.mask, owner))
      named.emplace(scenario.settings.by_counts ? i / top_k : i, owner);
  }
  return named.size();
}

// One rank's handles, and its calls with them.
class Caller {
 public:
  Caller(Exchange& exchange, Form form, bool asks) : exchange_(exchange), form_(form), asks_(asks) {}

  void play(const Stage& stage, const RankMask& gone) {
    const Stats before = exchange_.stats();
    for (std::size_t i = stage.fresh; i < stage.kept.size(); ++i) keep(stage.kept[i].first);
    for (std::size_t i = 0; i < stage.kept.size(); ++i) {
      combine(stage.given[i], handles_[i]);
      replay(stage.again[i], handles_[i], nullptr, false);
      combine(stage.again[i], handles_[i]);
      if (i != 0) continue;
      const bool anew = stage.again[i].settings.options.late_weights && are_at_dispatch(stage.again[i]);
      const Scenario& other = anew ? stage.anew[i] : stage.given[i];
      left_ = HandleMemory(exchange_, other);
      replay(other, handles_[i], &left_, anew);
      combine(other, left_);
      replay(other, left_, &left_, anew);  // in the handle's own place
      combine(other, left_);
      replay(stage.again[i], handles_[i], &left_, false);
      combine(stage.again[i], exchange_.rank() % 2 == 1 ? left_ : handles_[i]);  // they are of one dispatch
      combine(stage.given[i], handles_[i]);
    }
    overlap(stage.given[0], handles_[0], stage.again[1], handles_[1]);
    expect_counted(before, gone);
  }

 private:
  static bool are_at_dispatch(const Scenario& scenario) { return scenario.settings.weights_at == WeightsAt::dispatch; }

  void dispatch(const Scenario& scenario, RankRound& round) {
    if (asks_ && round.in.overflow == Overflow::refused && round.in.row_order != RowOrder::in_place) {
      exchange_.dispatch_async(round.in, round.call);
      count_rows(scenario);
      exchange_.dispatch_wait(round.out, round.call);
    } else {
      run_dispatch(exchange_, round, form_);
    }
    round.check_rows();
  }
  // What went to ranks that are gone, and came from them, since `before`.
  void expect_counted(const Stats& before, const RankMask& gone) const {
    const Stats now = exchange_.stats();
    expect_equal(exchange_.rank(), "Stats::dropped", dropped_, now.dropped);
    for (std::size_t peer = 0; peer < gone.size(); ++peer) {
      if (!gone[peer]) continue;
      expect_equal(exchange_.rank(), "Stats::bytes_sent to a rank that left", before.bytes_sent[peer],
                   now.bytes_sent[peer]);
      expect_equal(exchange_.rank(), "Stats::messages_sent to a rank that left", before.messages_sent[peer],
                   now.messages_sent[peer]);
      for (int local = 0; local < now.local_experts; ++local)
        expect_equal(exchange_.rank(), "Stats::received from a rank that left",
                     before.from(static_cast<int>(peer), local).tokens, now.from(static_cast<int>(peer), local).tokens);
    }
  }
  // The host knows the rows of a rank that is gone, too.
  void count_rows(const Scenario& scenario) {
    const RowCounts counted = exchange_.wait_for_counts();
    const test::ExpectedRows& expected = scenario.rows[static_cast<std::size_t>(exchange_.rank())];
    expect_equal(exchange_.rank(), "rows that are counted", expected.rows.size(),
                 static_cast<std::uint64_t>(counted.rows));
    for (std::size_t group = 0; group < counted.by_expert.size(); ++group)
      expect_equal(exchange_.rank(), "counts of group " + std::to_string(group),
                   static_cast<std::uint64_t>(expected.counts[group]),
                   static_cast<std::uint64_t>(counted.by_expert[group]));
  }

  // Only a dispatch that is given ids drops entries.
  void keep(const Scenario& scenario) {
    RankRound round(scenario, exchange_.rank());
    dropped_ += dropped_in(scenario, exchange_.rank());
    handles_.emplace_back(exchange_, scenario);
    round.out.handle = handles_.back().tensor();
    dispatch(scenario, round);
    run_combine(exchange_, round, form_);
    round.check_tokens();
  }
  static void give(RankRound& round, HandleMemory& handle, const Scenario& scenario) {
    round.in = input_with(round, handle);
    round.in.overflow = scenario.settings.overflow;
    if (!scenario.settings.by_counts) return;  // else a handle has no counts
    round.in.in_rank = round.in.expert_counts = {};
    round.out.counts = {};
  }
  void replay(const Scenario& scenario, HandleMemory& handle, HandleMemory* left, bool anew) {
    RankRound round(scenario, exchange_.rank());
    const ConstTensor weights = round.in.topk_weights;
    give(round, handle, scenario);
    if (anew && exchange_.rank() % 2 == 1) round.in.topk_weights = weights;
    if (left != nullptr) round.out.handle = left->tensor();
    dispatch(scenario, round);
  }
  void combine(const Scenario& scenario, HandleMemory& handle) {
    RankRound round(scenario, exchange_.rank());
    round.combine_in.src_info = {};
    round.combine_in = combine_input_with(round, handle);
    run_combine(exchange_, round, form_);
    round.check_tokens();
  }
  // The halves of a replay and of a combine lie in each other.
  void overlap(const Scenario& replayed, HandleMemory& of_replay, const Scenario& returned, HandleMemory& of_combine) {
    RankRound there(replayed, exchange_.rank()), back(returned, exchange_.rank());
    back.combine_in.src_info = {};
    give(there, of_replay, replayed);
    exchange_.dispatch_async(there.in);
    exchange_.combine_async(combine_input_with(back, of_combine));
    exchange_.dispatch_wait(there.out);
    if (there.in.row_order == RowOrder::in_place) there.read_slots(exchange_.arrival_slots(there.in.format));
    exchange_.combine_wait(back.combine_out);
    there.check_rows();
    back.check_tokens();
  }

  Exchange& exchange_;
  Form form_;
  bool asks_;  // what comes
  std::deque<HandleMemory> handles_;
  HandleMemory left_{0};
  std::uint64_t dropped_ = 0;
};

void go_on(const Target& target, const ScenarioSettings& settings, Form form) {
  if (!target.can_lose_ranks) throw Skipped("this backend cannot go on without a rank");
  const std::vector<Stage> stages = stages_of(settings);
  on_ranks(target, settings.shape.ranks, describe(settings), [&](World& world) {
    if (!world.capabilities().handles) throw Skipped("the exchanges of this world have no handles");
    if (settings.overflow != Overflow::refused && !world.capabilities().overflow_handles)
      throw Skipped("the exchanges of this world leave no handles of rows that may overflow");
    require_orders(world, settings);
    require_settings(world, settings);
    Exchange exchange(world, settings.shape, settings.options);
    Caller caller(exchange, form, form == Form::split && world.capabilities().asked_counts);
    for (std::size_t gone = 0; gone < stages.size(); ++gone) {
      if (gone != 0) exchange.add_to_mask(first_gone(settings.shape, gone));
      caller.play(stages[gone], first_gone(settings.shape, gone));
      if (gone + 1 < stages.size() && world.rank() == leaving(settings.shape)[gone]) return;
    }
  });
}

// Ranks 0 and 2 have lost each other, and both go on. Rank 1 masks nobody, and need not know.
void pair(const Target& target) {
  ScenarioSettings settings = settings_for("mxfp8", RowOrder::by_expert);
  settings.shape = {.ranks = 3, .experts = 7, .top_k = 4, .max_tokens = 9, .hidden = 64};
  const Scenario first = make_scenario(settings);
  std::vector<Scenario> seen;  // by rank
  for (int rank = 0; rank < 3; ++rank) {
    settings.gone = RankMask(3);
    if (rank != 1) settings.gone[static_cast<std::size_t>(2 - rank)] = true;
    seen.push_back(with_other_tokens(first, settings, 72));
  }
  on_ranks(target, 3, "two ranks that have lost each other", [&](World& world) {
    if (!world.capabilities().handles) throw Skipped("the exchanges of this world have no handles");
    const auto rank = static_cast<std::size_t>(world.rank());
    Exchange exchange(world, settings.shape, settings.options);
    HandleMemory handle(exchange);
    RankRound round(first, world.rank());
    round.out.handle = handle.tensor();
    run_dispatch(exchange, round, Form::one_call);
    if (rank != 1) exchange.add_to_mask(seen[rank].settings.gone);
    for (const Form form : {Form::one_call, Form::split}) {
      RankRound again(seen[rank], world.rank());
      again.in = input_with(again, handle);
      run_dispatch(exchange, again, form);
      again.check_rows();
      again.combine_in = combine_input_with(again, handle);
      run_combine(exchange, again, form);
      again.check_tokens();
      run_combine(exchange, again, form);
    }
  });
}

void in_order(const Target& target, RowOrder order, Reduction reduction) {
  const char* const formats[] = {"nvfp4", "mxfp8", "fp8_block128", "bf16"};
  ScenarioSettings settings = settings_for(formats[static_cast<std::size_t>(order)], order, reduction);
  settings.more_outputs = true;
  settings.scale_form = order == RowOrder::padded ? ScaleForm::rows : ScaleForm::none;
  settings.zero_padding = order != RowOrder::in_place;
  settings.options.short_handles = order == RowOrder::by_source || reduction == Reduction::exact;
  go_on(target, settings, reduction == Reduction::by_rank ? Form::split : Form::one_call);
}

// Each token names one rank. Only the usual outputs are asked for, and padding stays as it was.
void one_k(const Target& target, RowOrder order) {
  const bool tiled = order == RowOrder::by_expert;
  ScenarioSettings settings = settings_for(tiled ? "mxfp8" : "fp8_block128", order);
  settings.shape = {.ranks = 3, .experts = 7, .top_k = 1, .max_tokens = 9, .hidden = 128};
  settings.options.tiled_scales = tiled;
  go_on(target, settings, Form::one_call);
}

void shared_expert(const Target& target) {
  ScenarioSettings settings = settings_for("mxfp8", RowOrder::by_expert);
  settings.shape = {.ranks = 3, .experts = 7, .top_k = 4, .max_tokens = 9, .hidden = 64};
  settings.options.fused_shared_expert = true;
  settings.num_bias = 1;
  settings.options.result_format = format_named("fp8_block128");
  go_on(target, settings, Form::one_call);
  settings.options.reduction = Reduction::exact;
  settings.num_bias = 0;
  settings.unreduced = true;
  settings.weights = WeightForm::none;
  settings.options.fused_shared_expert = false;
  go_on(target, settings, Form::split);
}

// Weights come late and go home.
void weights(const Target& target, RowOrder order) {
  ScenarioSettings settings = settings_for("bf16", order);
  settings.options.returns_weights = settings.options.late_weights = settings.options.short_handles = true;
  settings.more_outputs = true;
  go_on(target, settings, Form::one_call);
  settings.more_outputs = false;
  settings.weights_at = order == RowOrder::by_source ? WeightsAt::dispatch : WeightsAt::combine;
  settings.shape = {.ranks = 3, .experts = 7, .top_k = 4, .max_tokens = 9, .hidden = 64};
  if (order != RowOrder::by_source) go_on(target, settings, Form::split);
  if (order == RowOrder::by_source) return;
  settings.options.late_weights = false;
  settings.weights_at = WeightsAt::dispatch;
  settings.options.reduction = Reduction::exact;
  settings.options.returns_weights = true;
  go_on(target, settings, Form::one_call);
}

// The dispatches have destination ranks and counts in place of ids, and a handle has no counts.
void by_counts(const Target& target) {
  ScenarioSettings settings = settings_for("mxfp8", RowOrder::by_source);
  settings.options.row_orders = {RowOrder::by_source};
  settings.weights = WeightForm::none;
  settings.by_counts = true;
  go_on(target, settings, Form::one_call);
  settings.options.returns_weights = settings.options.short_handles = true;
  go_on(target, settings, Form::split);
}

// Some rows have no room, and among them rows of ranks that left.
void overflow(const Target& target, RowOrder order) {
  ScenarioSettings settings = settings_for("fp8_block128", order);
  settings.more_outputs = true;
  settings.overflow = Overflow::expected;
  settings.room_percent = 60;
  settings.spare_rows = 0;
  settings.options.short_handles = order != RowOrder::by_expert;
  go_on(target, settings, Form::one_call);
}

}  // namespace

void add_masked_handle_cases(Cases& cases) {
  for (const RowOrder order : {RowOrder::by_expert, RowOrder::by_source, RowOrder::padded, RowOrder::in_place}) {
    const std::string name = to_string(order);
    const auto add = [&](const std::string& what, const char* says, auto run) {
      cases.push_back({"handles/masked_" + what + "_" + name, says, true,
                       [run, order](const Target& target) { run(target, order); }});
    };
    add("by_rank", "handles from before ranks left",
        [](const Target& target, RowOrder each) { in_order(target, each, Reduction::by_rank); });
    if (order != RowOrder::by_source)
      add("exact", "handles from before ranks left",
          [](const Target& target, RowOrder each) { in_order(target, each, Reduction::exact); });
    add("one_k", "handles from before a rank left, with top_k 1", one_k);
    add("weights", "handles from before ranks left, weights that come late and go home", weights);
    add("overflow", "handles from before ranks left, of rows without room", overflow);
  }
  cases.push_back(
      {"handles/masked_by_counts", "handles of dispatches by counts, from before ranks left", true, by_counts});
  cases.push_back({"handles/masked_pair", "handles from before two ranks lost each other", true, pair});
  cases.push_back(
      {"handles/masked_shared_expert", "handles from before ranks left, with a shared expert", true, shared_expert});
}

}  // namespace ferry::conformance
