#include "support/session.h"

#include <algorithm>

namespace ferry::test {

using conformance::Form;
using conformance::RankRound;
using conformance::ScenarioSettings;

std::string Session::description() const {
  std::string text;
  for (const SessionRound& round : rounds) {
    if (!text.empty()) text += '\n';
    text += conformance::describe(round.scenario.settings);
    if (round.fate == Fate::combined) continue;
    text += round.fate == Fate::abandoned ? " abandoned" : " abandoned returning";
  }
  return text;
}

Session make_session(const SessionSettings& settings, std::uint64_t seed) {
  Random random(seed);
  Session session{settings.shape, settings.options, {}};
  for (int i = 0; i < settings.num_rounds; ++i) {
    ScenarioSettings scenario;
    scenario.shape = settings.shape;
    scenario.options = settings.options;
    scenario.routing =
        settings.routings[static_cast<std::size_t>(random.below(static_cast<int>(settings.routings.size())))];
    scenario.seed = random.bits() % 1'000'000;
    scenario.exact_rows = settings.exact_rows;
    if (settings.options.late_weights) scenario.weights_at = static_cast<conformance::WeightsAt>(random.below(3));
    scenario.more_outputs = settings.more_outputs;
    if (settings.more_outputs && i % 2 == 0) {
      scenario.overflow = Overflow::expected;
      scenario.room_percent = random.between(0, 110);
      scenario.expert_stride = random.between(1, 6);
    }
    for (int rank = 0; !settings.row_orders.empty() && rank < settings.shape.ranks; ++rank)
      scenario.row_orders.push_back(
          settings.row_orders[static_cast<std::size_t>(random.below(static_cast<int>(settings.row_orders.size())))]);
    const double fate = random.unit();
    SessionRound round;
    round.scenario = conformance::make_scenario(scenario);
    round.form = random.chance(0.5) ? Form::split : Form::one_call;
    if (fate < settings.abandons)
      round.fate = fate * 2 < settings.abandons ? Fate::abandoned : Fate::abandoned_returning;
    session.rounds.push_back(std::move(round));
  }
  return session;
}

SessionSettings draw_settings(Random& random, const char* format, Reduction reduction, int max_workers) {
  SessionSettings settings;
  settings.shape.ranks = random.between(1, 4);
  settings.shape.experts = settings.shape.ranks + random.below(7);
  settings.shape.top_k = random.between(1, std::min(settings.shape.experts, 5));
  settings.shape.max_tokens = random.between(1, 7);
  settings.shape.hidden = 32 * random.between(1, 5);
  settings.options = conformance::options_for(format, reduction);
  settings.options.workers = random.between(1, max_workers);
  settings.options.fused_shared_expert = random.chance(0.25);
  settings.options.expert_alignment = random.chance(0.5) ? 0 : 4;
  return settings;
}

void run_session_round(Exchange& exchange, const SessionRound& round) {
  RankRound mine(round.scenario, exchange.rank());
  conformance::run_dispatch(exchange, mine, round.form);
  mine.check_rows();
  if (round.fate == Fate::combined) {
    conformance::run_combine(exchange, mine, round.form);
    mine.check_tokens();
  } else if (round.fate == Fate::abandoned_returning) {
    exchange.combine_async(mine.combine_in);
  }
}

void run_session(Exchange& exchange, const Session& session) {
  for (const SessionRound& round : session.rounds) run_session_round(exchange, round);
}

void run_session_on(FakeKind kind, std::uint64_t seed, const Session& session) {
  run_fake_ranks(kind, session.shape.ranks, seed, [&](FakeWorld& world) {
    Exchange exchange(world, session.shape, session.options);
    run_session(exchange, session);
  });
}

}  // namespace ferry::test
