// Ranks that do not come: every other rank names the missing one within its deadline, refuses later calls, and goes on
// with a new exchange that masks it. A lost rank is one that returns early.
#include <chrono>
#include <initializer_list>
#include <thread>

#include "conformance/cases/cases.h"
#include "conformance/rounds/rank_round.h"

namespace ferry::conformance {
namespace {

using std::chrono::milliseconds;

constexpr Shape kShape{.ranks = 4, .experts = 10, .top_k = 3, .max_tokens = 9, .hidden = 64};
constexpr int kLost = 2;
constexpr milliseconds kShort{400};
constexpr milliseconds kFarLater{15'000};  // a deadline of 400 ms has surely passed; kDefaultDeadline has not

ScenarioSettings settings_for(const char* format, Reduction reduction, milliseconds deadline = kShort) {
  ScenarioSettings settings;
  settings.shape = kShape;
  settings.options = options_for(format, reduction);
  settings.options.deadline = deadline;
  settings.seed = 5;
  return settings;
}

void require_lost_ranks(const Target& target) {
  if (!target.can_lose_ranks) throw Skipped("this backend cannot go on without a rank");
}

// `call` must throw PeerMissing that names `missing`, long before the default deadline.
WaitRecord expect_missing(int rank, const std::string& place, int missing, const std::function<void()>& call) {
  const auto begin = std::chrono::steady_clock::now();
  try {
    call();
  } catch (const PeerMissing& error) {
    const WaitRecord& record = error.record();
    expect_equal(rank, place + ": missing_rank", std::to_string(missing), std::to_string(record.missing_rank));
    expect_equal(rank, place + ": my_rank", std::to_string(rank), std::to_string(record.my_rank));
    if (std::string(error.what()).find("rank " + std::to_string(missing)) == std::string::npos)
      throw Failure(rank, place, "a text that names rank " + std::to_string(missing), error.what());
    if (std::chrono::steady_clock::now() - begin > kFarLater) throw Failure(rank, place, "its deadline", "far later");
    return record;
  }
  throw Failure(rank, place, "PeerMissing", "no error");
}

// A broken exchange refuses every call with the same culprit.
void expect_refused_from_now_on(Exchange& exchange, const Scenario& scenario, int missing) {
  const int rank = exchange.rank();
  RankRound again(scenario, rank);
  expect_missing(rank, "check of a broken exchange", missing, [&] { exchange.check(); });
  expect_missing(rank, "dispatch_async on a broken exchange", missing, [&] { exchange.dispatch_async(again.in); });
  expect_missing(rank, "dispatch_wait on a broken exchange", missing, [&] { exchange.dispatch_wait(again.out); });
  expect_missing(rank, "dispatch on a broken exchange", missing, [&] { exchange.dispatch(again.in, again.out); });
  expect_missing(rank, "combine on a broken exchange", missing,
                 [&] { exchange.combine(again.combine_in, again.combine_out); });
  expect_missing(rank, "combine_wait on a broken exchange", missing, [&] { exchange.combine_wait(again.combine_out); });
  again.check_untouched();
}

RankMask mask_of(int lost) {
  RankMask mask(static_cast<std::size_t>(kShape.ranks));
  mask[static_cast<std::size_t>(lost)] = true;
  return mask;
}

ScenarioSettings survivors_settings(const char* format, Reduction reduction) {
  ScenarioSettings settings = settings_for(format, reduction, kSuiteDeadline);
  settings.options.mask = mask_of(kLost);
  settings.seed = 6;
  return settings;
}

std::uint64_t dropped_entries(const Scenario& scenario, int rank, int lost) {
  std::uint64_t dropped = 0;
  for (const std::int64_t id : scenario.round.ranks[static_cast<std::size_t>(rank)].topk_ids)
    dropped += id >= 0 && owner_of(scenario.round.shape, static_cast<int>(id)) == lost ? 1 : 0;
  return dropped;
}

enum class Leaves { before_set_up, before_dispatch, after_async, before_combine, after_a_round };
// Where it says nothing, the deadlines of the others tell them. Else they are told, and their deadlines are long.
enum class How { says_nothing, destroys_its_exchange, aborts };
constexpr const char* kReason = "this disk is full";

// A rank that destroys its exchange in a round tells the others. This one keeps it until they have given up.
void keep_silent() { std::this_thread::sleep_for(3 * kShort); }

void leave(World& world, How how) {
  if (how == How::aborts) world.abort(kReason);
  if (how == How::says_nothing) keep_silent();
}

// The ranks that stay begin the call that waits in vain together. On a busy machine they are apart for longer than
// kShort.
void others_have_come(World& world, std::initializer_list<int> lost = {kLost}) {
  RankMask mask(static_cast<std::size_t>(world.size()));
  for (const int rank : lost) mask[static_cast<std::size_t>(rank)] = true;
  world.barrier(mask, kSuiteDeadline);
}

// An abort would end the call of a slower rank, too.
void all_have_come(World& world, How how) {
  if (how == How::aborts) world.barrier();
}

void expect_said(int rank, How how, const std::function<void()>& call) {
  expect_error(rank, "what the rank that leaves says", ErrorKind::aborted,
               {how == How::aborts ? kReason : "destroyed its exchange"}, call);
}

// Rank kLost leaves at a point; the others name it, are refused, and do two rounds without it.
void lose_a_rank(const Target& target, const char* format, Reduction reduction, Leaves leaves, How how) {
  require_lost_ranks(target);
  ScenarioSettings settings = settings_for(format, reduction, kDefaultDeadline);
  // Only the call that waits in vain has a short deadline.
  const CallOptions in_vain{how == How::says_nothing ? kShort : kDefaultDeadline};
  if (leaves == Leaves::before_set_up) settings.options.set_up_deadline = in_vain.deadline;
  const Scenario scenario = make_scenario(settings);
  const Scenario after = make_scenario(survivors_settings(format, reduction));
  on_ranks(target, kShape.ranks, "a rank that leaves", [&](World& world) {
    const int rank = world.rank();
    const bool lost = rank == kLost;
    if (leaves == Leaves::before_set_up) {
      if (lost) return leave(world, how);
      if (how == How::says_nothing) others_have_come(world);
      expect_missing(rank, "making an exchange", kLost,
                     [&] { Exchange broken(world, kShape, scenario.settings.options); });
    } else {
      Exchange exchange(world, kShape, scenario.settings.options);
      RankRound round(scenario, rank);
      if (lost && leaves == Leaves::before_dispatch) return leave(world, how);
      if (leaves == Leaves::after_a_round) {
        run_round(exchange, scenario, Form::split);
        all_have_come(world, how);
      }
      if (lost && leaves == Leaves::after_a_round) return leave(world, how);
      if (lost && leaves == Leaves::after_async) {
        exchange.dispatch_async(round.in);
        return leave(world, how);
      }
      if (leaves == Leaves::before_combine || (leaves == Leaves::after_async && how != How::aborts)) {
        run_dispatch(exchange, round, Form::split);
        all_have_come(world, how);
        if (lost) return leave(world, how);
        round.check_rows();
      }
      if (how == How::says_nothing) others_have_come(world);
      if (leaves == Leaves::after_async && how == How::aborts)
        expect_missing(rank, "a round", kLost, [&] { run_round(exchange, scenario, Form::split); });
      else if (leaves == Leaves::before_combine || leaves == Leaves::after_async)
        expect_missing(rank, "combine", kLost, [&] { exchange.combine(round.combine_in, round.combine_out, in_vain); });
      else
        expect_missing(rank, "dispatch", kLost, [&] { exchange.dispatch(round.in, round.out, in_vain); });
      if (how != How::says_nothing) expect_said(rank, how, [&] { exchange.check(); });
      expect_refused_from_now_on(exchange, scenario, kLost);
    }
    Exchange survivors(world, kShape, after.settings.options);
    run_round(survivors, after, Form::split);
    run_round(survivors, after, Form::one_call);
    expect_equal(rank, "Stats::dropped", 2 * dropped_entries(after, rank, kLost), survivors.stats().dropped);
  });
}

// Rank 0 waits briefly and gives up on rank kLost; rank 1, which waits long, must hear of kLost from it, and not take
// rank 0 for the culprit.
void name_the_culprit(const Target& target) {
  require_lost_ranks(target);
  const Scenario scenario = make_scenario(settings_for("bf16", Reduction::by_rank, kDefaultDeadline));
  on_ranks(target, kShape.ranks, "a short and a long deadline", [&](World& world) {
    const int rank = world.rank();
    Exchange exchange(world, kShape, scenario.settings.options);
    run_round(exchange, scenario, Form::split);
    if (rank == kLost) return keep_silent();
    others_have_come(world);
    RankRound round(scenario, rank);
    const CallOptions call{rank == 0 ? kShort : kDefaultDeadline};
    const WaitRecord record =
        expect_missing(rank, "dispatch", kLost, [&] { exchange.dispatch(round.in, round.out, call); });
    expect_equal(rank, "operation", to_string(Operation::dispatch), to_string(record.operation));
    if (rank == 0) expect_equal(rank, "reported_by", 0, static_cast<std::uint64_t>(record.reported_by));
    if (rank == 0 && record.epoch_seen >= record.epoch_wanted)
      throw Failure(rank, "epoch_seen", "less than " + std::to_string(record.epoch_wanted),
                    std::to_string(record.epoch_seen));
    expect_refused_from_now_on(exchange, scenario, kLost);
  });
}

// Rank 1 waits long for kLost, in combine. Rank 0 needs nothing of kLost there; it waits briefly for rank 1, in the
// next dispatch. Both must name kLost, though rank 0 waited for rank 1 first.
void follow_those_who_wait(const Target& target) {
  require_lost_ranks(target);
  ScenarioSettings settings = settings_for("bf16", Reduction::by_rank, kDefaultDeadline);
  settings.shape = {.ranks = 3, .experts = 9, .top_k = 3, .max_tokens = 6, .hidden = 64};
  const Scenario scenario = make_scenario(settings);
  on_ranks(target, 3, "a rank that waits for one that waits", [&](World& world) {
    const int rank = world.rank();
    Exchange exchange(world, settings.shape, settings.options);
    run_round(exchange, scenario, Form::one_call);
    RankRound round(scenario, rank);
    if (rank == 0)
      for (std::size_t i = 0; i < round.topk_ids.size(); i += sizeof(std::int32_t))
        round.topk_ids[i] = static_cast<std::byte>(i / sizeof(std::int32_t) % 3);  // its own experts
    run_dispatch(exchange, round, Form::one_call);
    if (rank == kLost) return keep_silent();
    others_have_come(world);
    round.combine_in.rows = round.out.payload;  // not those of the scenario
    round.combine_in.src_info = {};
    if (rank == 1) {
      expect_missing(rank, "combine", kLost, [&] { exchange.combine(round.combine_in, round.combine_out); });
    } else {
      exchange.combine(round.combine_in, round.combine_out);
      expect_missing(rank, "dispatch", kLost, [&] { exchange.dispatch(round.in, round.out, {kShort}); });
    }
    expect_refused_from_now_on(exchange, scenario, kLost);
  });
}

// One exchange goes on when the survivors add the rank that left between rounds to its mask.
void grow_the_mask(const Target& target, Reduction reduction) {
  require_lost_ranks(target);
  const Scenario scenario = make_scenario(settings_for("mxfp8", reduction, kSuiteDeadline));
  const Scenario after = make_scenario(survivors_settings("mxfp8", reduction));
  on_ranks(target, kShape.ranks, "a mask that grows", [&](World& world) {
    Exchange exchange(world, kShape, scenario.settings.options);
    for (int round = 0; round < 3; ++round) run_round(exchange, scenario, Form::split);
    if (world.rank() == kLost) return;
    exchange.add_to_mask(mask_of(kLost));
    for (int round = 0; round < 5; ++round) run_round(exchange, after, Form::split);
    expect_equal(world.rank(), "Stats::dropped", 5 * dropped_entries(after, world.rank(), kLost),
                 exchange.stats().dropped);
  });
}

// A rank that comes after the others have given up on it is told so, and does not hang.
void tell_the_late_rank(const Target& target) {
  require_lost_ranks(target);
  const Scenario scenario = make_scenario(settings_for("bf16", Reduction::by_rank, kDefaultDeadline));
  on_ranks(target, kShape.ranks, "a rank that comes too late", [&](World& world) {
    Exchange exchange(world, kShape, scenario.settings.options);
    run_round(exchange, scenario, Form::split);
    RankRound round(scenario, world.rank());
    if (world.rank() == kLost) {
      std::this_thread::sleep_for(4 * kShort);
      expect_missing(kLost, "the late rank's round", kLost, [&] {
        exchange.dispatch(round.in, round.out);  // may succeed: the others had sent their tokens
        exchange.combine(round.combine_in, round.combine_out);
      });
    } else {
      others_have_come(world);
      expect_missing(world.rank(), "dispatch", kLost, [&] { exchange.dispatch(round.in, round.out, {kShort}); });
    }
    expect_refused_from_now_on(exchange, scenario, kLost);
  });
}

// Two ranks leave: each error names one of them, and the others go on without both.
void lose_two_ranks(const Target& target) {
  require_lost_ranks(target);
  const Scenario scenario = make_scenario(settings_for("mxfp4", Reduction::by_rank));
  ScenarioSettings settings = survivors_settings("mxfp4", Reduction::by_rank);
  settings.options.mask[0] = true;
  const Scenario after = make_scenario(settings);
  on_ranks(target, kShape.ranks, "two ranks that leave", [&](World& world) {
    const int rank = world.rank();
    {
      Exchange exchange(world, kShape, scenario.settings.options);
      if (rank == kLost || rank == 0) return;
      others_have_come(world, {kLost, 0});
      RankRound round(scenario, rank);
      int missing = -1;
      try {
        exchange.dispatch(round.in, round.out);
      } catch (const PeerMissing& error) {
        missing = error.record().missing_rank;
      }
      if (missing != 0 && missing != kLost)
        throw Failure(rank, "missing_rank of dispatch", "0 or " + std::to_string(kLost),
                      missing < 0 ? "no error" : std::to_string(missing));
      expect_refused_from_now_on(exchange, scenario, missing);
    }
    Exchange survivors(world, kShape, settings.options);
    for (int round = 0; round < 3; ++round) run_round(survivors, after, Form::one_call);
  });
}

// A second rank leaves an exchange that goes without the first: it is named, and the others go on without both.
void lose_one_more(const Target& target) {
  require_lost_ranks(target);
  const Scenario without_one = make_scenario(survivors_settings("bf16", Reduction::by_rank));
  ScenarioSettings settings = survivors_settings("bf16", Reduction::by_rank);
  settings.options.mask[0] = true;
  const Scenario without_both = make_scenario(settings);
  on_ranks(target, kShape.ranks, "a second rank that leaves", [&](World& world) {
    const int rank = world.rank();
    if (rank == kLost) return;
    Exchange exchange(world, kShape, without_one.settings.options);
    run_round(exchange, without_one, Form::split);
    if (rank == 0) return;
    others_have_come(world, {kLost, 0});
    RankRound round(without_one, rank);
    expect_missing(rank, "dispatch", 0, [&] { exchange.dispatch(round.in, round.out, {kShort}); });
    expect_refused_from_now_on(exchange, without_one, 0);
    Exchange survivors(world, kShape, settings.options);
    for (int i = 0; i < 3; ++i) run_round(survivors, without_both, Form::one_call);
  });
}

// A rank leaves between rounds, and all mask it. Then rank 0 aborts and says that it does so for that rank. The others
// do not wait for that rank any more: they name rank 0.
void abort_for_a_masked_rank(const Target& target) {
  require_lost_ranks(target);
  const Scenario scenario = make_scenario(settings_for("bf16", Reduction::by_rank, kDefaultDeadline));
  on_ranks(target, kShape.ranks, "an abort for a masked rank", [&](World& world) {
    const int rank = world.rank();
    Exchange exchange(world, kShape, scenario.settings.options);
    run_round(exchange, scenario, Form::split);
    all_have_come(world, How::aborts);
    if (rank == kLost) return;
    exchange.add_to_mask(mask_of(kLost));
    if (rank == 0) return world.abort(kReason, kLost);
    RankRound round(scenario, rank);
    expect_missing(rank, "dispatch", 0, [&] { exchange.dispatch(round.in, round.out); });
    expect_said(rank, How::aborts, [&] { exchange.check(); });
    expect_refused_from_now_on(exchange, scenario, 0);
  });
}

// The deadline of calls may be far shorter than the time by which ranks are apart when they make their exchange.
void set_up_late(const Target& target) {
  const Scenario scenario = make_scenario(settings_for("mxfp8", Reduction::by_rank, milliseconds(20)));
  on_ranks(target, kShape.ranks, "a rank that makes its exchange late", [&](World& world) {
    if (world.rank() == kLost) std::this_thread::sleep_for(milliseconds(150));
    Exchange exchange(world, kShape, scenario.settings.options);
    RankRound round(scenario, world.rank());
    exchange.dispatch(round.in, round.out, {kSuiteDeadline});
    round.check_rows();
  });
}

}  // namespace

void add_fault_cases(Cases& cases) {
  const auto add = [&](const char* name, const char* what, bool quick, const char* format, Reduction reduction,
                       Leaves leaves, How how = How::says_nothing) {
    cases.push_back({std::string("faults/") + name, what, quick,
                     [=](const Target& target) { lose_a_rank(target, format, reduction, leaves, how); }});
  };
  add("lost_before_set_up", "a rank never makes its exchange", true, "bf16", Reduction::by_rank, Leaves::before_set_up);
  add("lost_before_dispatch", "a rank never dispatches", true, "mxfp8", Reduction::by_rank, Leaves::before_dispatch);
  add("lost_after_async", "a rank leaves after dispatch_async", true, "nvfp4", Reduction::by_rank, Leaves::after_async);
  add("lost_before_combine", "a rank never combines", true, "bf16", Reduction::by_rank, Leaves::before_combine);
  add("lost_before_combine_exact", "a rank never combines", false, "fp8_block128", Reduction::exact,
      Leaves::before_combine);
  add("lost_after_a_round", "a rank leaves between rounds", true, "bf16", Reduction::exact, Leaves::after_a_round);
  add("aborted_before_set_up", "a rank aborts before it makes its exchange", true, "bf16", Reduction::by_rank,
      Leaves::before_set_up, How::aborts);
  add("aborted_before_dispatch", "a rank aborts before it dispatches", true, "mxfp8", Reduction::by_rank,
      Leaves::before_dispatch, How::aborts);
  add("aborted_after_async", "a rank aborts after dispatch_async", true, "nvfp4", Reduction::by_rank,
      Leaves::after_async, How::aborts);
  add("aborted_before_combine", "a rank aborts before it combines", true, "bf16", Reduction::by_rank,
      Leaves::before_combine, How::aborts);
  add("aborted_after_a_round", "a rank aborts between rounds", false, "bf16", Reduction::exact, Leaves::after_a_round,
      How::aborts);
  add("destroyed_after_async", "a rank destroys its exchange after dispatch_async", true, "bf16", Reduction::by_rank,
      Leaves::after_async, How::destroys_its_exchange);
  add("destroyed_before_combine", "a rank destroys its exchange before it combines", true, "mxfp8", Reduction::exact,
      Leaves::before_combine, How::destroys_its_exchange);
  cases.push_back({"faults/late_set_up", "making an exchange has a deadline of its own", true, set_up_late});
  cases.push_back(
      {"faults/culprit", "a victim names the rank that is missing, not the one that told it", true, name_the_culprit});
  cases.push_back({"faults/chain", "a rank that waits for one that waits names the one that is missing", true,
                   follow_those_who_wait});
  cases.push_back({"faults/growing_mask_by_rank", "an exchange goes on without a rank that left between rounds", true,
                   [](const Target& b) { grow_the_mask(b, Reduction::by_rank); }});
  cases.push_back({"faults/growing_mask_exact", "an exchange goes on without a rank that left between rounds", false,
                   [](const Target& b) { grow_the_mask(b, Reduction::exact); }});
  cases.push_back(
      {"faults/late_rank", "a rank that comes too late is told that it was given up", true, tell_the_late_rank});
  cases.push_back({"faults/two_lost", "two ranks leave at once", true, lose_two_ranks});
  cases.push_back({"faults/lost_one_more", "a rank leaves when another one is masked", true, lose_one_more});
  cases.push_back({"faults/aborted_for_a_masked_rank", "a rank aborts for one that the others have masked", true,
                   abort_for_a_masked_rank});
}

}  // namespace ferry::conformance
