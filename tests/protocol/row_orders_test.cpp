// The orders of rows over every fabric of the tests: sessions in which each rank chooses an order for each round, and
// what the invariants of by_source and in_place rest on.
#include <gtest/gtest.h>

#include "conformance/handle_sequence.h"
#include "support/session.h"

namespace ferry::test {
namespace {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int kFewer = 4;  // sanitizers are slow: fewer seeds find what they look for
#else
constexpr int kFewer = 1;
#endif

constexpr RowOrders kAllOrders{RowOrder::by_expert, RowOrder::by_source, RowOrder::padded, RowOrder::in_place};

class Orders : public testing::TestWithParam<FakeKind> {
 protected:
  static void run(FakeKind kind, std::uint64_t seed, const Session& session) {
    try {
      run_session_on(kind, seed, session);
    } catch (const std::exception& error) {
      FAIL() << name_of(kind) << ", seed " << seed << ": " << error.what() << "\n" << session.description();
    }
  }
};

// I4, I23: each rank draws an order for each round, and some rounds are given up.
TEST_P(Orders, AgreeWithTheOracle) {
  for (std::uint64_t seed = 1; seed <= 40 / kFewer && !HasFailure(); ++seed) {
    Random random(seed);
    SessionSettings settings = draw_settings(random, seed % 2 == 0 ? "bf16" : "fp8_block128", Reduction::by_rank,
                                             is_stepped(GetParam()) ? 1 : 2);
    settings.shape.max_tokens = random.between(1, 40);
    settings.options.fused_shared_expert = false;
    settings.options.row_orders = kAllOrders;
    settings.row_orders = {RowOrder::by_source, RowOrder::padded, RowOrder::in_place, RowOrder::by_expert};
    run(GetParam(), seed, make_session(settings, seed));
  }
}

// I15: the lists that a rank sends have two copies, as the network may read the ones of the round before.
TEST_P(Orders, ReuseTheirTokenLists) {
  SessionSettings many;
  many.shape = {3, 6, 2, 36, 32};
  many.options = conformance::options_for("bf16");
  many.options.row_orders = kAllOrders;
  many.row_orders = {RowOrder::by_source};
  many.num_rounds = 24 / kFewer;
  for (std::uint64_t seed = 1; seed <= 6 / kFewer + 1 && !HasFailure(); ++seed)
    run(GetParam(), seed, make_session(many, seed));
}

INSTANTIATE_TEST_SUITE_P(Fabrics, Orders,
                         testing::Values(FakeKind::direct, FakeKind::reordering, FakeKind::reordering_nodes,
                                         FakeKind::stepped, FakeKind::stepped_late, FakeKind::stepped_lagging),
                         [](const auto& kind) { return std::string(name_of(kind.param)); });

}  // namespace
}  // namespace ferry::test
