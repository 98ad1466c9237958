// Whole rounds on emulated GPUs against the oracle: small random shapes, both reductions, rounds that are abandoned,
// GPUs of several sizes, whose launch policies differ. A seed decides the order in which all threads of all ranks go
// on.
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <regex>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "emulated/emulated_ranks.h"
#include "emulated/late_puts.h"
#include "exchange/sizes/sizes.h"
#include "ferry/detail/cuda/state/kernel_params.h"
#include "gpu/device_round.h"

namespace ferry::test {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr int kFewer = 2;  // sanitizers are slow
#else
constexpr int kFewer = 1;
#endif

constexpr RowOrders kAllOrders{RowOrder::by_expert, RowOrder::by_source, RowOrder::padded, RowOrder::in_place};

// The same session in another order of everything.
void run(std::uint64_t seed, const Session& session, const emulated::Gpus& gpus, EmulatedReach reach) {
  try {
    run_emulated(session, {.seed = seed}, gpus, reach);
  } catch (const std::exception& error) {
    FAIL() << "seed " << seed << ", " << gpus.multiprocessors << " multiprocessors: " << error.what() << "\n"
           << session.description();
  }
}

class EmulatedRounds : public testing::TestWithParam<std::tuple<const char*, Reduction>> {
 protected:
  const char* format() const { return std::get<0>(GetParam()); }
  Reduction reduction() const { return std::get<1>(GetParam()); }
  SessionSettings draw(std::uint64_t seed) const {
    Random random(seed * 7 + static_cast<std::uint64_t>(reduction()));
    SessionSettings settings = draw_settings(random, format(), reduction(), 1);
    settings.num_rounds = 3;
    return settings;
  }
  SessionSettings draw_orders(std::uint64_t seed) const {
    SessionSettings settings = draw(seed);
    settings.options.fused_shared_expert = false;
    settings.row_orders = {RowOrder::padded, RowOrder::in_place, RowOrder::by_expert};
    if (reduction() == Reduction::by_rank) settings.row_orders.push_back(RowOrder::by_source);
    if (reduction() == Reduction::by_rank) settings.options.row_orders = kAllOrders;
    return settings;
  }
  void TearDown() override {
    change_params<cuda::DispatchParams>({});
    change_params<cuda::CombineParams>({});
  }
};

TEST_P(EmulatedRounds, AgreeWithTheOracle) {
  for (std::uint64_t seed = 1; seed <= 4 / kFewer && !HasFailure(); ++seed)
    run(seed, make_session(draw(seed), seed), {}, EmulatedReach::direct);
}

// More blocks, and so other roles, than on the smallest GPU.
TEST_P(EmulatedRounds, AgreeOnLargerGpus) {
  for (std::uint64_t seed = 11; seed <= 12 && !HasFailure(); ++seed)
    run(seed, make_session(draw(seed), seed), {.multiprocessors = 5}, EmulatedReach::direct);
}

// Two blocks are one thread block, and rows come through shared memory: what few blocks of a large GPU do.
TEST_P(EmulatedRounds, AgreeWithPairedBlocks) {
  for (std::uint64_t seed = 21; seed <= 22 && !HasFailure(); ++seed) {
    SessionSettings settings = draw(seed);
    settings.options.concurrent = 2;
    run(seed, make_session(settings, seed), {.multiprocessors = 8}, EmulatedReach::direct);
  }
}

// Each rank chooses an order for each round, and whether it is one kernel or two halves. Slots are memory that the test
// can read.
TEST_P(EmulatedRounds, AgreeInEveryOrderOfRows) {
  for (std::uint64_t seed = 61; seed <= 63 && !HasFailure(); ++seed)
    run(seed, make_session(draw_orders(seed), seed), {.multiprocessors = seed == 63 ? 5 : 2}, EmulatedReach::direct);
  SessionSettings paired = draw_orders(64);
  paired.options.concurrent = 2;
  run(64, make_session(paired, 64), {.multiprocessors = 8}, EmulatedReach::direct);
}

// Token lists are put, too, and ranks whose rows are not by_source get them as all others do. Where rows have no room,
// zeros are put in place of results.
TEST_P(EmulatedRounds, AgreeInEveryOrderOfRowsByLatePuts) {
  for (std::uint64_t seed = 71; seed <= 74 && !HasFailure(); ++seed) {
    SessionSettings settings = draw_orders(seed);
    settings.more_outputs = seed % 2 == 0;
    settings.num_rounds = 5;
    run(seed, make_session(settings, seed), {}, EmulatedReach::late_puts);
  }
}

// I19: as few bits of the round in a count as the largest shapes leave, over so many rounds that they come again.
TEST_P(EmulatedRounds, AgreeWithTagsOfTwoBits) {
  change_params<cuda::DispatchParams>(
      [](cuda::DispatchParams& params) { params.links.tag = cuda::RoundTag(cuda::RoundTag::kLargestValue); });
  SessionSettings settings = draw(51);
  settings.num_rounds = 9;
  run(51, make_session(settings, 51), {}, EmulatedReach::direct);
}

// What large rounds do: messages leave by stores, and results are made in their slots.
TEST_P(EmulatedRounds, AgreeByStores) {
  change_params<cuda::DispatchParams>([](cuda::DispatchParams& params) { params.roles.stores = true; });
  change_params<cuda::CombineParams>([](cuda::CombineParams& params) { params.roles.in_place = true; });
  for (std::uint64_t seed = 31; seed <= 32 && !HasFailure(); ++seed)
    run(seed, make_session(draw(seed), seed), {}, EmulatedReach::direct);
  run(33, make_session(draw_orders(33), 33), {}, EmulatedReach::direct);
}

TEST_P(EmulatedRounds, AgreeByLatePuts) {
  for (std::uint64_t seed = 41; seed <= 44 && !HasFailure(); ++seed)
    run(seed, make_session(draw(seed), seed), {}, EmulatedReach::late_puts);
}

// Every run above asks so of its rounds.
TEST(EmulatedInputs, ThatChangedAreFound) {
  conformance::ScenarioSettings settings;
  settings.shape = {.ranks = 2, .experts = 4, .top_k = 2, .max_tokens = 5, .hidden = 32};
  settings.options = conformance::options_for("bf16", Reduction::by_rank);
  const conformance::Scenario scenario = make_scenario(settings);
  const DeviceRound round(scenario, 1);
  EXPECT_NO_THROW(round.check_inputs(1));
  const int other = -1;
  cuda::cuda_check(cudaMemcpy(const_cast<void*>(round.in.topk_ids.data), &other, sizeof other, cudaMemcpyHostToDevice),
                   "cudaMemcpy");
  EXPECT_THROW(round.check_inputs(1), conformance::Failure);
}

// Runs the session with all dispatches as one call, or in halves. Returns the bytes that rank 0 sent to each rank.
std::vector<std::uint64_t> bytes_sent_as(Session session, conformance::Form form, const emulated::Gpus& gpus) {
  for (SessionRound& round : session.rounds) round.form = form;
  EmulatedRanks ranks(session.shape, session.options, gpus, EmulatedReach::direct);
  ranks.run(session.rounds, {.seed = 95});
  return ranks.exchange(0).stats().bytes_sent;
}

// I23: so many entries are listed by receiving blocks, from the table; so few by the block that counts them, here in
// more words than a warp has lanes. In halves a kernel of its own lists them, and as many bytes are sent.
TEST(EmulatedLists, OfWholeDispatchesComeFromTheTableOrTheCounts) {
  for (const Shape& shape : {Shape{2, 40, 32, 70, 32}, Shape{2, 4, 1, 1100, 32}}) {
    for (const int concurrent : {1, 2}) {  // 2: two blocks are one thread block
      SessionSettings settings;
      settings.shape = shape;
      settings.options = conformance::options_for("bf16", Reduction::by_rank);
      settings.options.row_orders = {RowOrder::by_source};
      settings.options.concurrent = concurrent;
      settings.row_orders = {RowOrder::by_source};
      settings.routings = {"uniform"};
      settings.num_rounds = 1;
      settings.abandons = 0;
      const Session session = make_session(settings, 95);
      const emulated::Gpus gpus{.multiprocessors = 4 * concurrent};
      const std::vector<std::uint64_t> whole = bytes_sent_as(session, conformance::Form::one_call, gpus);
      EXPECT_EQ(whole, bytes_sent_as(session, conformance::Form::split, gpus)) << session.description();
    }
  }
}

// I15: token lists come long after all else of their dispatch. Of every two routings whose lists lie in one buffer a
// rank may read the list of the second alone.
TEST(EmulatedRoundsOfNodes, AgreeWhereTokenListsLag) {
  Random random(5);
  SessionSettings settings = draw_settings(random, "bf16", Reduction::by_rank, 1);
  settings.shape = {.ranks = 2, .experts = 4, .top_k = 2, .max_tokens = 70, .hidden = 32};
  settings.options.fused_shared_expert = false;
  settings.options.row_orders = kAllOrders;
  settings.row_orders = {RowOrder::by_expert, RowOrder::by_source, RowOrder::padded};
  settings.routings = {"ragged", "uniform"};
  settings.num_rounds = 9;
  settings.abandons = 0.6;
  const HeapMap map = make_heap_map(settings.shape, settings.options, 0, true);
  const std::size_t begin = map.begin(HeapMap::kTokenLists);
  LateNet::hold_up({begin, begin + map.region_bytes(HeapMap::kTokenLists), 20'000});
  for (std::uint64_t seed = 81; seed <= 84 && !testing::Test::HasFailure(); ++seed)
    run(seed, make_session(settings, seed), {}, EmulatedReach::late_puts);
  LateNet::hold_up({});
}

// A rank has waited for lists before a kernel says how long it waited (DispatchOutput::waited_ns), and has sent its own
// before it waits.
TEST(EmulatedRoundsOfNodes, CountTheirWaitsForTokenLists) {
  Random random(5);
  SessionSettings settings = draw_settings(random, "bf16", Reduction::by_rank, 1);
  settings.shape = {.ranks = 2, .experts = 4, .top_k = 2, .max_tokens = 70, .hidden = 32};
  settings.options.fused_shared_expert = false;
  settings.options.row_orders = kAllOrders;
  settings.row_orders = {RowOrder::by_expert};
  settings.more_outputs = true;
  settings.num_rounds = 4;
  settings.abandons = 0;
  std::mutex mutex;
  std::map<int, std::string> launched;  // by rank: l of lists, and of waiting for them; r of rows and messages
  const auto note = [&](int rank, const char* what) {
    const std::scoped_lock lock(mutex);
    launched[rank] += what;
  };
  change_params<cuda::TokenListParams>([&](cuda::TokenListParams& lists) { note(lists.plan.rank, "l"); });
  change_params<cuda::FinishParams>([&](cuda::FinishParams& left) { note(left.lists.plan.rank, "r"); });
  change_params<cuda::MoreRowsParams>([&](cuda::MoreRowsParams& rows) { note(rows.plan.rank, "r"); });
  run(81, make_session(settings, 81), {}, EmulatedReach::late_puts);
  change_params<cuda::TokenListParams>({});
  change_params<cuda::FinishParams>({});
  change_params<cuda::MoreRowsParams>({});
  EXPECT_EQ(launched.size(), 2u);
  for (const auto& [rank, kernels] : launched) EXPECT_TRUE(std::regex_match(kernels, std::regex("(llr+)+"))) << kernels;
}

#if !defined(__SANITIZE_ADDRESS__)
// The messages that `rank` sends to each other rank.
std::vector<std::uint64_t> messages_of(const Session& session, int rank) {
  std::vector<std::uint64_t> messages(static_cast<std::size_t>(session.shape.ranks));
  for (const SessionRound& round : session.rounds) {
    const auto top_k = static_cast<std::size_t>(session.shape.top_k);
    const std::vector<std::int64_t>& ids = round.scenario.round.ranks[static_cast<std::size_t>(rank)].topk_ids;
    for (std::size_t first = 0; first < ids.size(); first += top_k) {
      std::set<int> owners;
      for (std::size_t k = 0; k < top_k; ++k)
        if (ids[first + k] >= 0) owners.insert(owner_of(session.shape, static_cast<int>(ids[first + k])));
      for (const int owner : owners) ++messages[static_cast<std::size_t>(owner)];
    }
  }
  return messages;
}

// Kernels have the addresses of kMaxGpuRanks ranks in their parameter, and counts for so many in shared memory. Those
// of more ranks are in device memory. It is left out under AddressSanitizer, whose stacks of all threads take 20 GB.
TEST(EmulatedRoundsOfNodes, HaveMoreRanksThanAKernelsParameterHolds) {
  Random random(6);
  SessionSettings settings = draw_settings(random, "bf16", Reduction::by_rank, 1);
  settings.shape = {kMaxGpuRanks + 3, kMaxGpuRanks + 3, 3, 2, 32};
  settings.options.fused_shared_expert = false;
  settings.routings = {"uniform"};
  settings.num_rounds = 2;
  settings.abandons = 0;
  const Session session = make_session(settings, 91);
  EmulatedRanks ranks(session.shape, session.options, {.count = session.shape.ranks}, EmulatedReach::late_puts);
  ranks.run(session.rounds, {.seed = 91});
  for (int rank = 0; rank < session.shape.ranks; ++rank)
    EXPECT_EQ(ranks.exchange(rank).stats().messages_sent, messages_of(session, rank)) << "rank " << rank;
}
#endif

INSTANTIATE_TEST_SUITE_P(Formats, EmulatedRounds,
                         testing::Combine(testing::Values("bf16", "fp8_block128", "nvfp4"),
                                          testing::Values(Reduction::by_rank, Reduction::exact)),
                         [](const auto& each) {
                           return std::string(std::get<0>(each.param)) +
                                  (std::get<1>(each.param) == Reduction::by_rank ? "_by_rank" : "_exact");
                         });

}  // namespace
}  // namespace ferry::test
