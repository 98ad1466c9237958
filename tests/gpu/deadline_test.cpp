// A rank that does not come, where calls only enqueue: the others' calls return, the next one says who is missing,
// their streams are as good as before, and they go on with a new exchange. Three ranks of one GPU.
#include <gmock/gmock.h>

#include <chrono>
#include <functional>

#include "gpu/device_round.h"
#include "gpu/few_gpus.h"
#include "gpu/gpu_test.h"
#include "gpu/stream.h"

namespace ferry::test {
namespace {

using conformance::Scenario;
using conformance::ScenarioSettings;
using cuda::cuda_check;
using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;

constexpr Shape kShape{.ranks = 3, .experts = 10, .top_k = 3, .max_tokens = 60, .hidden = 256};
constexpr int kLost = 2;
constexpr milliseconds kShort{400};
constexpr milliseconds kFarLater{15'000};  // kShort has surely passed

Scenario scenario_of(std::uint64_t seed, const RankMask& mask = {}) {
  ScenarioSettings settings;
  settings.shape = kShape;
  settings.options = conformance::options_for("fp8_block128");
  settings.options.mask = mask;
  settings.routing = "some_none";
  settings.seed = seed;
  return conformance::make_scenario(settings);
}

void wait_for(const Stream& stream) { cuda_check(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize"); }

// What a kernel has found is thrown by `ask`, once the kernel is over.
void check_report(Exchange& exchange, Epoch epoch, const std::function<void()>& ask) {
  try {
    ask();
    ADD_FAILURE() << "rank " << exchange.rank() << ": no error";
  } catch (const PeerMissing& error) {
    const WaitRecord& record = error.record();
    EXPECT_EQ(record.missing_rank, kLost);
    EXPECT_EQ(record.my_rank, exchange.rank());
    EXPECT_NE(record.reported_by, kLost);
    EXPECT_EQ(record.operation, Operation::dispatch);
    EXPECT_EQ(record.phase, Phase::routing);
    EXPECT_EQ(record.epoch_wanted, epoch);
    EXPECT_LT(record.epoch_seen, epoch);
    EXPECT_GE(record.block, 0);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("rank 2 is missing"), HasSubstr(to_string(Phase::routing))));
  }
}

// A dispatch that kLost does not come to.
void dispatch_in_vain(Exchange& exchange, const DeviceRound& round, const Stream& stream, Epoch epoch) {
  using Clock = std::chrono::steady_clock;
  const CallOptions call{.deadline = kShort, .stream = stream};
  const auto begin = Clock::now();
  exchange.dispatch(round.in, round.out, call);
  EXPECT_LT(Clock::now() - begin, kShort) << "the call itself waited";
  wait_for(stream);                             // no error of CUDA's: the kernel ends by itself
  EXPECT_GE(Clock::now() - begin, kShort / 2);  // the first to give up tells the others
  EXPECT_LT(Clock::now() - begin, kFarLater);
  check_report(exchange, epoch, [&] { exchange.check(); });
  check_report(exchange, epoch, [&] { exchange.combine(round.combine_in, round.combine_out, call); });
  EXPECT_THROW(exchange.dispatch(round.in, round.out, call), PeerMissing) << "a broken exchange takes a call";
}

void expect_usable(const Stream& stream, const DeviceRound& round) {
  std::uint32_t word = 0;
  cuda_check(cudaMemsetAsync(round.out.row_offsets.data, 0x5a, sizeof word, stream.get()), "cudaMemsetAsync");
  cuda_check(cudaMemcpyAsync(&word, round.out.row_offsets.data, sizeof word, cudaMemcpyDeviceToHost, stream.get()),
             "cudaMemcpyAsync");
  wait_for(stream);
  EXPECT_EQ(word, 0x5a5a5a5au);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

void enqueue_round(Exchange& exchange, const DeviceRound& round, const Stream& stream) {
  exchange.dispatch(round.in, round.out, {.stream = stream});
  exchange.combine(round.combine_in, round.combine_out, {.stream = stream});
}

// An exchange that ends for want of kLost, which makes its own and `rounds` rounds with it.
void lose_a_rank(World& world, const Stream& stream, const Scenario& scenario, int rounds) {
  Exchange exchange(world, kShape, scenario.settings.options);
  DeviceRound round(scenario, world.rank());
  world.barrier();  // what allocates may wait for the device, and others' kernels for this rank
  for (int i = 0; i < rounds; ++i) enqueue_round(exchange, round, stream);
  wait_for(stream);
  if (world.rank() != kLost) {
    dispatch_in_vain(exchange, round, stream, kFirstEpoch + static_cast<Epoch>(rounds));
    expect_usable(stream, round);
  }
  world.barrier();
}

// Rounds on a new exchange of the ranks that the scenario's mask leaves in.
void go_on(World& world, const Stream& stream, const Scenario& scenario) {
  const RankMask& mask = scenario.settings.options.mask;
  Exchange exchange(world, kShape, scenario.settings.options);
  DeviceRound round(scenario, world.rank());
  world.barrier(mask);
  for (int i = 0; i < 3; ++i) enqueue_round(exchange, round, stream);
  world.barrier(mask);  // all is enqueued
  round.fetch();
  world.barrier(mask);
  round.host.check_rows();
  round.host.check_tokens();
}

class GpuDeadlines : public GpuTest {
 protected:
  // Afterwards kLost is back, or is masked.
  static void run(int rounds_before, bool comes_back) {
    const Scenario scenario = scenario_of(41);
    const Scenario after = scenario_of(42, comes_back ? RankMask{} : RankMask{false, false, true});
    const auto body = [&](World& world) {
      cuda_check(cudaSetDevice(0), "cudaSetDevice");
      const Stream stream(0);
      lose_a_rank(world, stream, scenario, rounds_before);
      if (comes_back || world.rank() != kLost) go_on(world, stream, after);
    };
    run_cuda_ranks(kShape.ranks, false, body, kShape.ranks);
  }
};

TEST_F(GpuDeadlines, AreReportedByTheNextCallAndTheOthersGoOnWithoutTheRank) { run(0, false); }
TEST_F(GpuDeadlines, AreReportedByTheNextCallAndAllGoOnTogether) { run(0, true); }
TEST_F(GpuDeadlines, OfALaterRoundNameItsEpoch) { run(3, false); }

}  // namespace
}  // namespace ferry::test
