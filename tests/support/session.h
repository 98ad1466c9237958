// Session: several rounds on one exchange, drawn by seed and known to every rank: shapes, data that changes from round
// to round, rounds that are abandoned. Each rank checks all its outputs against the oracle, byte for byte.
#pragma once

#include <string>
#include <vector>

#include "conformance/rounds/rank_round.h"
#include "conformance/rounds/scenario.h"
#include "support/fake_world.h"

namespace ferry::test {

// What becomes of a round after its dispatch.
enum class Fate {
  combined,
  abandoned,            // the next dispatch abandons it before any combine call
  abandoned_returning,  // ... after combine_async
};

struct SessionRound {
  conformance::Scenario scenario;
  conformance::Form form = conformance::Form::split;
  Fate fate = Fate::combined;
};

struct Session {
  Shape shape;
  ExchangeOptions options;
  std::vector<SessionRound> rounds;

  std::string description() const;
};

struct SessionSettings {
  Shape shape;
  ExchangeOptions options;
  int num_rounds = 5;
  double abandons = 0.3;             // how often a round is abandoned, either way
  bool exact_rows = false;           // outputs hold what comes and no more
  bool more_outputs = false;         // all that may be left out, and in every other round too little room for the rows
  std::vector<RowOrder> row_orders;  // drawn for each rank and round; empty: by_expert
  std::vector<std::string> routings = {"ragged", "uniform", "some_none", "empty_ranks", "zipf", "no_tokens"};
};

Session make_session(const SessionSettings& settings, std::uint64_t seed);

// A small shape of 1 to 4 ranks, a format, a reduction and the other options.
SessionSettings draw_settings(Random& random, const char* format, Reduction reduction, int max_workers);

// One rank's part: all rounds, all checked. Throws conformance::Failure.
void run_session(Exchange& exchange, const Session& session);
void run_session_round(Exchange& exchange, const SessionRound& round);

// The whole session on a fresh world of that kind.
void run_session_on(FakeKind kind, std::uint64_t seed, const Session& session);

}  // namespace ferry::test
