// The kernel that makes token lists, alone, over tables of more tokens than its block has words for, and of none.
// Rounds of the other tests have one word or two.
#include <gtest/gtest.h>

#include <vector>

#include "cuda/device/device_memory.h"
#include "exchange/sizes/plan.h"
#include "exchange/sizes/sizes.h"
#include "ferry/detail/cuda/launch/launch.h"
#include "ferry/detail/cuda/state/cuda_check.h"
#include "ferry/shape.h"
#include "support/emulated_gpu/gpus.h"
#include "support/emulated_gpu/machine.h"

namespace ferry::test {
namespace {

using cuda::cuda_check;
using cuda::DeviceMemory;

constexpr Epoch kRouting = 7;
constexpr Shape kShape{.ranks = 3, .experts = 8, .top_k = 2, .max_tokens = 40000, .hidden = 32};
constexpr int kMasked = 1;

// A source with tables, and the memory of all ranks.
class Source {
 public:
  Source() {
    emulated::set_gpus({});
    emulated::reset({});
    const ExchangeOptions options{.row_orders = {RowOrder::by_source}};
    plan = make_plan(kShape, options, make_heap_map(kShape, options, 0, false), 0);
    for (int rank = 0; rank < kShape.ranks; ++rank) {
      heaps_.push_back(std::make_unique<DeviceMemory>(plan.map.total()));
      links.heap[rank] = heaps_.back()->data();
    }
    state_.emplace(sizeof(cuda::DeviceState) + 3 * sizeof(std::uint64_t) + 3);
    links.own = links.heap[0];
    links.state = state_->as<cuda::DeviceState>(0);
    links.state->dispatched.raw = kRouting;
    bytes = state_->as<DeviceWord<std::uint64_t>>(sizeof(cuda::DeviceState));
    masked = state_->as<std::uint8_t>(sizeof(cuda::DeviceState) + 3 * sizeof(std::uint64_t));
    masked[kMasked] = 1;
    plan.masked = links.masked = masked;
  }

  // Entries of no order, some of no expert.
  void fill(int tokens) {
    auto* table = reinterpret_cast<RoutingEntry*>(links.own + plan.map.table(kRouting, 0));
    std::uint32_t seed = 1;
    for (int i = 0; i < tokens * kShape.top_k; ++i) {
      seed = seed * 1664525u + 1013904223u;
      const int expert = static_cast<int>(seed >> 24) % (kShape.experts + 3) - 3;
      experts_.push_back(expert < 0 ? -1 : expert);
      table[i] = {expert < 0 ? 0 : plan.code.pack(expert, 5), 1.0f};
    }
  }
  bool names(int token, int rank) const {
    for (int k = 0; k < kShape.top_k; ++k)
      if (experts_[static_cast<std::size_t>(token * kShape.top_k + k)] >= 0 &&
          owner_of(kShape, experts_[static_cast<std::size_t>(token * kShape.top_k + k)]) == rank)
        return true;
    return false;
  }
  const std::uint64_t* list_at(int rank) const {
    return reinterpret_cast<const std::uint64_t*>(links.heap[rank] + plan.map.token_list(kRouting, 0));
  }

  Plan plan;
  cuda::PeerLinks links;
  DeviceWord<std::uint64_t>* bytes = nullptr;
  std::uint8_t* masked = nullptr;

 private:
  std::vector<std::unique_ptr<DeviceMemory>> heaps_;
  std::optional<DeviceMemory> state_;
  std::vector<int> experts_;
};

void expect_lists_of(int tokens, int blocks) {
  Source source;
  source.fill(tokens);
  const cuda::ReceiveLaunchers& launchers = *cuda::direct_launchers().receive;
  launchers.prepare(source.plan);
  cuda::FinishParams left;
  left.lists = {source.plan, source.links, tokens, source.bytes};
  left.has_lists = true;
  launchers.finish(left, {.small_blocks = blocks}, nullptr);
  cuda_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  EXPECT_EQ(emulated::failure(), "");
  for (const int rank : {0, 2}) {
    const std::uint64_t* list = source.list_at(rank);
    std::uint32_t before = 0;
    for (int token = 0; token < tokens; ++token) {
      const std::uint64_t word = list[1 + token / 32];
      ASSERT_EQ(comes(word, token % 32), source.names(token, rank)) << "token " << token << " to rank " << rank;
      ASSERT_EQ(tokens_before(word, token % 32), before) << "token " << token << " to rank " << rank;
      before += source.names(token, rank) ? 1 : 0;
    }
    EXPECT_EQ(list[0], kRouting << 32 | before) << tokens << " tokens, to rank " << rank;
    EXPECT_EQ(source.bytes[rank].raw, rank == 0 ? 0 : 8 * (1 + (static_cast<unsigned>(tokens) + 31) / 32));
  }
  EXPECT_EQ(source.list_at(kMasked)[0], 0u) << "to a masked rank";
}

TEST(EmulatedLists, GiveEveryTokenItsPlace) {
  for (const int tokens : {0, 1, 31, 32, 33, 2000})
    for (const int blocks : {1, 2, 100}) expect_lists_of(tokens, blocks);
}
TEST(EmulatedLists, OfMoreTokensThanABlockHasWordsFor) { expect_lists_of(16384 * 2 + 77, 2); }

}  // namespace
}  // namespace ferry::test
