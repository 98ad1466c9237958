// The contract that all ranks of an exchange compare when it is made: each field that differs is named with both
// values.
#include "exchange/agreement/contract.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "exchange/exchange_steps.h"

namespace ferry {
namespace {

struct Made {
  Shape shape{.ranks = 3, .experts = 8, .top_k = 2, .max_tokens = 5, .hidden = 64};
  ExchangeOptions options;
  bool has_remote_ranks = false;
};

// A world of threads that says of itself what a test wants.
class SpoiltWorld final : public World {
 public:
  SpoiltWorld(World& of, bool has_remote_ranks) : of_(of), has_remote_ranks_(has_remote_ranks) {}
  WorldKind kind() const override { return of_.kind(); }
  const char* backend() const override { return of_.backend(); }
  int rank() const override { return of_.rank(); }
  int size() const override { return of_.size(); }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all, const RankMask& mask,
                  std::chrono::milliseconds deadline) override {
    of_.all_gather(mine, all, mask, deadline);
  }
  bool has_remote_ranks() const override { return has_remote_ranks_; }
  std::unique_ptr<ExchangeSteps> make_steps(const Shape&, const ExchangeOptions&, const HeapMap&) override {
    return nullptr;
  }

 private:
  World& of_;
  bool has_remote_ranks_;
};

void expect_refused_everywhere(const char* names, const std::function<void(Made&)>& spoil) {
  run_ranks(3, [&](World& world) {
    Made mine;
    if (world.rank() == 1) spoil(mine);
    SpoiltWorld seen(world, mine.has_remote_ranks);
    try {
      require_same_contract(seen, mine.shape, mine.options, 0);
      ADD_FAILURE() << "rank " << world.rank() << " agreed on " << names;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
      EXPECT_NE(std::string(error.what()).find(names), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("on rank 1"), std::string::npos) << error.what();
    }
  });
}

TEST(Contract, AgreesWhereAllIsTheSame) {
  run_ranks(3, [](World& world) {
    Made mine;
    mine.options.workers = 1 + world.rank();  // a rank's own affair
    EXPECT_NO_THROW(require_same_contract(world, mine.shape, mine.options, 0));
  });
}

// A rank may have begun more exchanges than the others: one of its calls failed where theirs did not come to it.
TEST(Contract, GivesTheExchangeOneNumberOnAllRanks) {
  run_ranks(3, [](World& world) {
    const Made mine;
    const std::uint32_t newest = world.rank() == 1 ? 7 : 5;
    EXPECT_EQ(require_same_contract(world, mine.shape, mine.options, newest), 8u) << "rank " << world.rank();
  });
}

TEST(Contract, NamesWhatDiffers) {
  expect_refused_everywhere("shape.experts", [](Made& m) { m.shape.experts = 9; });
  expect_refused_everywhere("shape.top_k", [](Made& m) { m.shape.top_k = 3; });
  expect_refused_everywhere("shape.max_tokens", [](Made& m) { m.shape.max_tokens = 6; });
  expect_refused_everywhere("shape.hidden", [](Made& m) { m.shape.hidden = 96; });
  expect_refused_everywhere("reduction", [](Made& m) { m.options.reduction = Reduction::exact; });
  expect_refused_everywhere("format", [](Made& m) { m.options.format = format_named("mxfp4"); });
  expect_refused_everywhere("expert_alignment", [](Made& m) { m.options.expert_alignment = 32; });
  expect_refused_everywhere("skip_a2a", [](Made& m) { m.options.skip_a2a = true; });
  expect_refused_everywhere("fused_shared_expert", [](Made& m) { m.options.fused_shared_expert = true; });
  expect_refused_everywhere("row_orders is by_expert, padded, in_place on rank 0 and by_expert",
                            [](Made& m) { m.options.row_orders = {RowOrder::by_expert}; });
  expect_refused_everywhere("concurrent", [](Made& m) { m.options.concurrent = 2; });
  expect_refused_everywhere("allreduce_world_size is 1 on rank 0 and 4",
                            [](Made& m) { m.options.allreduce_world_size = 4; });
  expect_refused_everywhere("late_weights is 0 on rank 0 and 1", [](Made& m) { m.options.late_weights = true; });
  expect_refused_everywhere("message_copies is 2 on rank 0 and 4", [](Made& m) { m.options.message_copies = 4; });
  expect_refused_everywhere("returns_weights is 0 on rank 0 and 1", [](Made& m) { m.options.returns_weights = true; });
  expect_refused_everywhere("dynamic_scales is 0 on rank 0 and 1", [](Made& m) { m.options.dynamic_scales = true; });
  expect_refused_everywhere("World::has_remote_ranks is 0 on rank 0 and 1", [](Made& m) { m.has_remote_ranks = true; });
}

}  // namespace
}  // namespace ferry
