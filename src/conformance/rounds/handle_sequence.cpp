#include "conformance/rounds/handle_sequence.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>

#include "conformance/rounds/refused_dispatch.h"

namespace ferry::conformance {
namespace {

using Kind = HandleMove::Kind;

// Draws moves. What a handle holds is known here: the scenario of its dispatch.
class Drawing {
 public:
  Drawing(const std::vector<ScenarioSettings>& exchanges, std::uint64_t seed) : exchanges_(exchanges), random_(seed) {}

  HandleMove next() {
    HandleMove move;
    move.kind = static_cast<Kind>(random_.below(7));
    move.exchange = static_cast<std::size_t>(random_.below(static_cast<int>(exchanges_.size())));
    move.form = random_.chance(0.5) ? Form::split : Form::one_call;
    move.combines = random_.chance(0.5);
    move.copies = random_.chance(0.3);
    move.dispatch_begins = random_.chance(0.5);
    move.dispatch_ends = random_.chance(0.5);
    move.handle = static_cast<std::size_t>(random_.below(kHandles));
    move.given = static_cast<std::size_t>(random_.below(kHandles));
    if (move.kind == Kind::refused) return refused(move);
    if (move.kind == Kind::overlap && !held_[move.given]) move.kind = Kind::keep;
    if ((move.kind == Kind::replay || move.kind == Kind::combine) && !held_[move.handle]) move.kind = Kind::keep;
    move.replays = move.kind == Kind::overlap && held_[move.handle].has_value() && random_.chance(0.5);
    // A handle that a combine reads is not written meanwhile.
    if (move.kind == Kind::overlap && !move.replays && move.handle == move.given)
      move.handle = (move.given + 1) % kHandles;
    if (move.kind == Kind::overlap) move.returned = of_handle(move.given, move.exchange);
    if (move.kind == Kind::given_up) move.returned = fresh(move.exchange);
    const bool is_given = move.replays || move.kind == Kind::replay || move.kind == Kind::combine;
    move.scenario = is_given ? of_handle(move.handle, move.exchange) : fresh(move.exchange);
    if (!is_given && move.kind != Kind::round) held_[move.handle] = move.scenario;
    return move;
  }

 private:
  // A rank alone refuses its call where nothing is sent (skip_a2a), which the others know nothing of.
  HandleMove refused(HandleMove move) {
    const ScenarioSettings& settings = exchanges_[move.exchange];
    const RankMask& mask = settings.options.mask;
    move.odd = random_.below(settings.shape.ranks);
    if (settings.options.skip_a2a || (!mask.empty() && mask[static_cast<std::size_t>(move.odd)]))
      move.kind = Kind::round;
    move.combines = move.combines && held_[move.given].has_value();
    move.scenario = fresh(move.exchange);
    if (move.combines) move.returned = of_handle(move.given, move.exchange);
    return move;
  }
  std::uint64_t seed() { return random_.bits() % 1'000'000; }
  Scenario fresh(std::size_t exchange) {
    const auto cases = test::routing_cases();
    ScenarioSettings settings = exchanges_[exchange];
    settings.routing = cases[static_cast<std::size_t>(random_.below(static_cast<int>(cases.size())))].name;
    settings.seed = seed();
    choose_reduction(settings);
    return make_scenario(settings);
  }
  Scenario of_handle(std::size_t handle, std::size_t exchange) {
    ScenarioSettings settings = exchanges_[exchange];
    choose_reduction(settings);
    return with_other_tokens(*held_[handle], settings, seed());
  }
  void choose_reduction(ScenarioSettings& settings) {
    if (settings.options.reduction != Reduction::either) return;
    settings.chosen = random_.chance(0.5) ? Reduction::exact : Reduction::by_rank;
  }

  const std::vector<ScenarioSettings>& exchanges_;
  test::Random random_;
  std::optional<Scenario> held_[kHandles];
};

class Player {
 public:
  explicit Player(std::span<Exchange> exchanges) : exchanges_(exchanges) {
    for (std::size_t i = 0; i < kHandles; ++i) handles_.emplace_back(exchanges[0]);
  }

  void play(const HandleMove& move) {
    Exchange& exchange = exchanges_[std::min(move.exchange, exchanges_.size() - 1)];
    HandleMemory& handle = handles_[move.handle];
    RankRound round(move.scenario, exchange.rank());
    switch (move.kind) {
      case Kind::round:
        run_round(exchange, move.scenario, move.form);
        break;
      case Kind::keep:
        keep(exchange, round, move);
        break;
      case Kind::replay:
        round.in = input_with(round, handle);
        run_dispatch(exchange, round, move.form);
        round.check_rows();
        if (move.combines) finish_with(handle, exchange, round, move.form);
        break;
      case Kind::combine:
        round.combine_in.src_info = {};  // no dispatch has filled it
        finish_with(handle, exchange, round, move.form);
        break;
      case Kind::overlap:
        overlap(exchange, round, move);
        break;
      case Kind::given_up:
        give_up(exchange, move);
        keep(exchange, round, move);
        break;
      case Kind::refused:
        refused(exchange, round, move);
        break;
    }
    if (move.copies) handle = HandleMemory(handle);  // what was there before is gone
  }

 private:
  // The first one is whole in any case.
  static void take_memory(const Exchange& exchange, HandleMemory& handle, const HandleMove& move) {
    if (move.handle != 0) handle = HandleMemory(exchange, move.scenario);
  }
  static void finish(Exchange& exchange, RankRound& round, Form form) {
    run_combine(exchange, round, form);
    round.check_tokens();
  }
  static void finish_with(HandleMemory& handle, Exchange& exchange, RankRound& round, Form form) {
    round.combine_in = combine_input_with(round, handle);
    finish(exchange, round, form);
  }

  static void end_dispatch(Exchange& exchange, RankRound& round) {
    exchange.dispatch_wait(round.out);
    if (round.in.row_order == RowOrder::in_place) round.read_slots(exchange.arrival_slots(round.in.format));
  }

  void overlap(Exchange& exchange, RankRound& round, const HandleMove& move) {
    RankRound returned(move.returned, exchange.rank());
    returned.combine_in.src_info = {};
    HandleMemory& handle = handles_[move.handle];
    if (move.replays) {
      round.in = input_with(round, handle);
    } else {
      take_memory(exchange, handle, move);
      round.out.handle = handle.tensor();
    }
    const CombineInput back = combine_input_with(returned, handles_[move.given]);
    if (move.dispatch_begins) exchange.dispatch_async(round.in);
    exchange.combine_async(back);
    if (!move.dispatch_begins) exchange.dispatch_async(round.in);
    if (move.dispatch_ends) end_dispatch(exchange, round);
    exchange.combine_wait(returned.combine_out);
    if (!move.dispatch_ends) end_dispatch(exchange, round);
    round.check_rows();
    returned.check_tokens();
    if (!move.combines) return;
    move.replays ? finish_with(handle, exchange, round, move.form) : finish(exchange, round, move.form);
  }

  void keep(Exchange& exchange, RankRound& round, const HandleMove& move) {
    HandleMemory& handle = handles_[move.handle];
    take_memory(exchange, handle, move);
    round.out.handle = handle.tensor();
    run_dispatch(exchange, round, move.form);
    round.check_rows();
    if (move.combines) finish(exchange, round, move.form);
  }
  static void give_up(Exchange& exchange, const HandleMove& move) {
    RankRound round(move.returned, exchange.rank());
    run_dispatch(exchange, round, move.form);
    round.check_rows();
    exchange.combine_async(round.combine_in);
  }

  // The handle that the dispatch was to leave stays as it was, and the combine goes on.
  void refused(Exchange& exchange, RankRound& round, const HandleMove& move) {
    std::optional<RankRound> returned;
    if (move.combines) {
      returned.emplace(move.returned, exchange.rank());
      returned->combine_in.src_info = {};
      exchange.combine_async(combine_input_with(*returned, handles_[move.given]));
    }
    HandleMemory untouched(exchange);
    round.out.handle = untouched.tensor();
    const ExcessTokens tokens(exchange.shape(), 1);
    if (exchange.rank() == move.odd) tokens.give(round);
    const auto call = static_cast<RefusedBy>((static_cast<std::size_t>(exchange.rank()) + move.handle) % kRefusedBy);
    run_refused_dispatch(exchange, round, call, move.odd, 1);
    for (const std::byte each : untouched.bytes())
      expect_equal(exchange.rank(), "the handle of a refused dispatch", static_cast<std::uint64_t>(kPoison),
                   static_cast<std::uint64_t>(each));
    if (!move.combines) return;
    exchange.combine_wait(returned->combine_out);
    returned->check_tokens();
  }

  std::span<Exchange> exchanges_;
  std::vector<HandleMemory> handles_;
};

}  // namespace

std::int64_t handle_bytes_of(const Exchange& exchange, const Scenario& scenario) {
  const RowLayout& layout = exchange.layout();
  if (!exchange.options().short_handles) return layout.handle_bytes;
  const test::Round& round = scenario.round;
  const int rank = exchange.rank();
  std::int64_t messages = 0, rows = 0;
  for (int source = 0; source < round.shape.ranks; ++source) {
    if (test::is_masked_out(round, source) || (round.options.skip_a2a && source != rank)) continue;
    const test::RankInput& from = round.ranks[static_cast<std::size_t>(source)];
    const auto top_k = static_cast<std::size_t>(round.shape.top_k);
    for (std::size_t token = 0; token < static_cast<std::size_t>(from.num_tokens); ++token) {
      const auto first = from.topk_ids.begin() + static_cast<std::ptrdiff_t>(token * top_k);
      const auto mine = std::count_if(first, first + round.shape.top_k, [&](std::int64_t id) {
        return id >= 0 && owner_of(round.shape, static_cast<int>(id)) == rank;
      });
      rows += mine;
      messages += mine != 0 ? 1 : 0;
    }
  }
  return layout.short_handle_bytes(round.ranks[static_cast<std::size_t>(rank)].num_tokens, messages, rows);
}

void check_until_told(Exchange& exchange) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (std::chrono::steady_clock::now() < until) {
    exchange.check();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

DispatchInput input_with(const RankRound& round, HandleMemory& handle) {
  DispatchInput in = round.in;
  in.topk_ids = {};
  in.topk_weights = {};
  in.router_weight = nullptr;
  in.handle = handle.tensor();
  return in;
}

CombineInput combine_input_with(const RankRound& round, HandleMemory& handle) {
  CombineInput in = round.combine_in;
  in.handle = handle.tensor();
  return in;
}

HandleSequence make_handle_sequence(std::vector<ScenarioSettings> exchanges, std::uint64_t seed, int moves) {
  HandleSequence sequence{std::move(exchanges), {}};
  Drawing drawing(sequence.exchanges, seed);
  for (int i = 0; i < moves; ++i) sequence.moves.push_back(drawing.next());
  return sequence;
}

void run_handle_sequence(std::span<Exchange> exchanges, const HandleSequence& sequence) {
  Player player(exchanges);
  for (std::size_t i = 0; i < sequence.moves.size(); ++i) {
    try {
      player.play(sequence.moves[i]);
    } catch (const Failure& failure) {
      throw Failure(failure.rank(), failure.place() + " in move " + std::to_string(i), failure.expected(),
                    failure.got());
    }
  }
}

}  // namespace ferry::conformance
