// Whole rounds over every fabric of the tests, against the oracle: small random shapes, both reductions, data that
// changes from round to round, rounds that are abandoned. The fabrics differ in what they delay and reorder.
#include <gtest/gtest.h>

#include <tuple>

#include "support/session.h"

namespace ferry::test {
namespace {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int kFewer = 4;  // sanitizers are slow: fewer seeds find what they look for
#else
constexpr int kFewer = 1;
#endif

void run(FakeKind kind, std::uint64_t seed, const Session& session) {
  try {
    run_session_on(kind, seed, session);
  } catch (const std::exception& error) {
    FAIL() << name_of(kind) << ", seed " << seed << ": " << error.what() << "\n" << session.description();
  }
}

using Case = std::tuple<FakeKind, const char*, Reduction>;

class Rounds : public testing::TestWithParam<Case> {
 protected:
  FakeKind kind() const { return std::get<0>(GetParam()); }
  const char* format() const { return std::get<1>(GetParam()); }
  Reduction reduction() const { return std::get<2>(GetParam()); }
  int max_workers() const { return is_stepped(kind()) ? 1 : 2; }

  SessionSettings settings(Shape shape) const {
    SessionSettings settings;
    settings.shape = shape;
    settings.options = conformance::options_for(format(), reduction());
    settings.options.workers = max_workers();
    return settings;
  }
};

TEST_P(Rounds, AgreeWithTheOracle) {
  for (std::uint64_t seed = 1; seed <= 40 / kFewer && !HasFailure(); ++seed) {
    Random random(seed);
    run(kind(), seed, make_session(draw_settings(random, format(), reduction(), max_workers()), seed));
  }
}

// Many rounds in a row use both copies of every buffer again and again, at a shape whose slots all change hands.
TEST_P(Rounds, ReuseTheirBuffers) {
  SessionSettings many = settings({.ranks = 3, .experts = 6, .top_k = 3, .max_tokens = 4, .hidden = 32});
  many.num_rounds = 24 / kFewer;
  for (std::uint64_t seed = 1; seed <= 8 / kFewer && !HasFailure(); ++seed) run(kind(), seed, make_session(many, seed));
}

// I8. Which rank writes slot [t][j] changes from round to round, so a late result of an abandoned round would land in
// another rank's.
TEST_P(Rounds, CanBeAbandonedAfterCombineAsync) {
  SessionSettings abandoned = settings({.ranks = 4, .experts = 8, .top_k = 2, .max_tokens = 4, .hidden = 32});
  abandoned.abandons = 1.0;
  abandoned.num_rounds = 6;
  for (std::uint64_t seed = 1; seed <= 16 / kFewer && !HasFailure(); ++seed) {
    Session session = make_session(abandoned, seed);
    for (std::size_t i = 0; i < session.rounds.size(); ++i)
      session.rounds[i].fate = i % 2 == 0 ? Fate::abandoned_returning : Fate::combined;
    run(kind(), seed, session);
  }
}

TEST_P(Rounds, OfTwoExchangesOverlap) {
  const Session first =
      make_session(settings({.ranks = 3, .experts = 7, .top_k = 3, .max_tokens = 5, .hidden = 64}), 11);
  const Session second =
      make_session(settings({.ranks = 3, .experts = 5, .top_k = 2, .max_tokens = 6, .hidden = 32}), 12);
  run_fake_ranks(kind(), 3, 13, [&](FakeWorld& world) {
    Exchange one(world, first.shape, first.options);
    Exchange other(world, second.shape, second.options);
    for (std::size_t i = 0; i < first.rounds.size(); ++i) {
      conformance::RankRound mine(first.rounds[i].scenario, world.rank());
      one.dispatch_async(mine.in);
      run_session_round(other, second.rounds[i]);
      one.dispatch_wait(mine.out);
      mine.check_rows();
    }
  });
}

// What a rank sent is delivered although it has destroyed its exchange, and a peer may still signal its memory.
TEST_P(Rounds, OutliveTheExchangeOfAFasterRank) {
  const Session session =
      make_session(settings({.ranks = 4, .experts = 8, .top_k = 3, .max_tokens = 6, .hidden = 64}), 21);
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    run_fake_ranks(kind(), 4, seed, [&](FakeWorld& world) {
      for (int again = 0; again < 3; ++again) {
        Exchange exchange(world, session.shape, session.options);
        run_session_round(exchange, session.rounds[0]);
      }
    });
  }
}

std::string case_name(const testing::TestParamInfo<Case>& info) {
  return std::string(name_of(std::get<0>(info.param))) + "_" + std::get<1>(info.param) + "_" +
         to_string(std::get<2>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Fabrics, Rounds,
                         testing::Combine(testing::Values(FakeKind::direct, FakeKind::reordering,
                                                          FakeKind::reordering_nodes, FakeKind::stepped,
                                                          FakeKind::stepped_late, FakeKind::stepped_lagging),
                                          testing::Values("bf16", "fp8_block128"),
                                          testing::Values(Reduction::by_rank, Reduction::exact)),
                         case_name);

// Hundreds of interleavings of the same few rounds: what threads that run freely may never show. A failure names the
// seed, and the seed is the interleaving.
class Interleavings : public testing::TestWithParam<FakeKind> {};

TEST_P(Interleavings, AllAgreeWithTheOracle) {
  for (const Reduction reduction : {Reduction::by_rank, Reduction::exact}) {
    SessionSettings settings;
    settings.shape = {.ranks = 3, .experts = 4, .top_k = 2, .max_tokens = 2, .hidden = 32};
    settings.options = conformance::options_for("bf16", reduction);
    settings.num_rounds = 6;
    const Session session = make_session(settings, 31);
    for (std::uint64_t seed = 1; seed <= 200 / kFewer && !HasFailure(); ++seed) run(GetParam(), seed, session);
  }
}

INSTANTIATE_TEST_SUITE_P(Stepped, Interleavings,
                         testing::Values(FakeKind::stepped, FakeKind::stepped_late, FakeKind::stepped_lagging),
                         [](const auto& kind) { return std::string(name_of(kind.param)); });

}  // namespace
}  // namespace ferry::test
