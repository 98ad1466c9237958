// Whole rounds on emulated GPUs against the oracle: small random shapes, both reductions, rounds that are abandoned,
// GPUs of several sizes, whose launch policies differ. The seed decides the order in which all threads of all ranks go
// on.
#include <gtest/gtest.h>

#include <tuple>

#include "emulated/emulated_ranks.h"

namespace ferry::test {
namespace {

void run(std::uint64_t seed, const Session& session, const emulated::Gpus& gpus = {}) {
  try {
    run_emulated(session, {.seed = seed}, gpus);
  } catch (const std::exception& error) {
    FAIL() << "seed " << seed << ": " << error.what() << "\n" << session.description();
  }
}

class EmulatedRounds : public testing::TestWithParam<std::tuple<const char*, Reduction>> {
 protected:
  const char* format() const { return std::get<0>(GetParam()); }
  Reduction reduction() const { return std::get<1>(GetParam()); }
};

TEST_P(EmulatedRounds, AgreeWithTheOracle) {
  for (std::uint64_t seed = 1; seed <= 4 && !HasFailure(); ++seed) {
    Random random(seed * 7 + static_cast<std::uint64_t>(reduction()));
    SessionSettings settings = draw_settings(random, format(), reduction(), 1);
    settings.num_rounds = 3;
    run(seed, make_session(settings, seed));
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, EmulatedRounds,
                         testing::Combine(testing::Values("bf16", "fp8_block128", "nvfp4"),
                                          testing::Values(Reduction::by_rank, Reduction::exact)),
                         [](const auto& each) {
                           return std::string(std::get<0>(each.param)) +
                                  (std::get<1>(each.param) == Reduction::by_rank ? "_by_rank" : "_exact");
                         });

}  // namespace
}  // namespace ferry::test
