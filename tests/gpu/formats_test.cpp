// One exchange with several formats, in memory of a GPU: dispatches that take turns, in captured graphs and beside
// them, and handles that pass from one format to another. The emulated suite runs these tests, too.
#include <atomic>
#include <string>

#include "conformance/rounds/handle_sequence.h"
#include "gpu/captured_graph.h"
#include "gpu/few_gpus.h"
#include "gpu/gpu_test.h"
#include "gpu/handle_round.h"

namespace ferry::test {
namespace {

using conformance::Scenario;
using conformance::ScenarioSettings;

const int kRanks = allowed_ranks(4);
constexpr int kReplays = 6;

class GpuFormats : public GpuTest {};

void run(const std::function<void(World&)>& body) { run_cuda_ranks(kRanks, false, body, ranks_per_gpu(kRanks)); }

// Of dispatches in format 0, mxfp4, the smallest; 1, bf16; 2, nvfp4. All align rows alike, so handles pass between
// them.
ScenarioSettings settings_in(int format, Reduction reduction = Reduction::by_rank) {
  ScenarioSettings settings;
  settings.shape = {kRanks, 10, 3, 24, 288};
  settings.options = conformance::options_for("mxfp4", reduction);
  settings.options.expert_alignment = 4;
  settings.options.more_formats.resize(2);
  settings.options.more_formats[0] = {.format = format_named("bf16"), .expert_alignment = 4};
  settings.options.more_formats[1] = {.format = format_named("nvfp4"), .expert_alignment = 4};
  settings.format = format;
  settings.options = conformance::exchange_options(settings);
  settings.routing = "ragged";
  return settings;
}

TEST_F(GpuFormats, TakeTurnsInGraphsAndBesideThem) {
  std::vector<Scenario> scenarios;
  for (int format = 0; format < 3; ++format) scenarios.push_back(make_scenario(settings_in(format)));
  run([&](World& world) {
    HandleRank rank(world, scenarios[0]);
    HandleRound first(scenarios[0], world.rank()), second(scenarios[1], world.rank()),
        third(scenarios[2], world.rank());
    const auto round_of = [&](HandleRound& round) {
      rank.exchange.dispatch(round.in, round.out, rank.call);
      rank.exchange.combine(round.combine_in, round.combine_out, rank.call);
    };
    const CapturedGraph in_bf16(rank.stream.get(), [&] { round_of(second); });
    const CapturedGraph in_both(rank.stream.get(), [&] {
      round_of(third);
      round_of(first);
    });
    rank.wait();
    world.barrier();
    for (int replay = 0; replay < kReplays; ++replay) {
      for (HandleRound* round : {&first, &second, &third}) round->reset(rank.stream.get());
      in_bf16.launch(rank.stream.get());
      if (replay % 2 == 0) {
        in_both.launch(rank.stream.get());
      } else {
        round_of(first);
        round_of(third);
      }
      for (HandleRound* round : {&first, &second, &third}) {
        rank.check_rows(*round);
        rank.check_tokens(*round);
      }
    }
    world.barrier();
  });
}

// Forward in four bits, back in bf16, and once more in nvfp4.
TEST_F(GpuFormats, HandlesPassFromOneToAnother) {
  for (const Reduction reduction : {Reduction::by_rank, Reduction::exact}) {
    const Scenario forward = make_scenario(settings_in(0, reduction));
    const Scenario back = with_other_tokens(forward, settings_in(1, reduction), 7);
    const Scenario again = with_other_tokens(forward, settings_in(2, reduction), 8);
    run([&](World& world) {
      HandleRank rank(world, forward);
      const Handle handle(rank.exchange);
      HandleRound first(forward, world.rank()), second(back, world.rank()), third(again, world.rank());
      world.barrier();
      rank.keep(first, handle);
      rank.combine(first, handle, true);
      rank.replay(second, handle);
      rank.combine(second, handle);
      rank.replay(third, handle);
      rank.combine(first, handle);
      rank.combine(third, handle, true);
      world.barrier();
    });
  }
}

// A format that aligns less, and outputs for the worst case of it: rows of the handle's alignment do not fit.
TEST_F(GpuFormats, HandlesWhoseRowsHaveNoRoomEndTheExchange) {
  ScenarioSettings aligned;
  aligned.shape = {kRanks, 16, 2, 4, 64};
  aligned.options = conformance::options_for("mxfp4");
  aligned.options.expert_alignment = 32;
  aligned.options.more_formats = {{.format = format_named("bf16"), .expert_alignment = 1}};
  aligned.routing = "uniform";
  ScenarioSettings narrow = aligned;
  narrow.format = 1;
  narrow.options = conformance::exchange_options(narrow);
  narrow.spare_rows = 0;
  const Scenario kept = make_scenario(aligned), replayed = with_other_tokens(kept, narrow, 9);
  for (const bool split : {false, true}) {
    std::atomic<int> told = 0;
    run([&](World& world) {
      HandleRank rank(world, kept);
      const Handle handle(rank.exchange);
      HandleRound first(kept, world.rank()), second(replayed, world.rank());
      world.barrier();
      rank.keep(first, handle);
      if (split) {
        rank.exchange.dispatch_async(second.replayed(handle), rank.call);
        rank.exchange.dispatch_wait(second.out, rank.call);
      } else {
        rank.exchange.dispatch(second.replayed(handle), second.out, rank.call);
      }
      rank.wait();
      world.barrier();
      try {
        rank.exchange.check();
        ADD_FAILURE() << "rank " << world.rank() << " noticed nothing";
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::invalid_argument) << error.what();
        const std::string text = error.what();
        EXPECT_NE(text.find("handle"), std::string::npos) << text;
        if (text.find("the outputs had room for") != std::string::npos) ++told;
      }
      world.barrier();
    });
    EXPECT_GT(told, 0);
  }
}

// A block's shared memory holds a message, and a result.
TEST_F(GpuFormats, LargerThanABlockAreRefused) {
  run_cuda_ranks(1, false, [](World& world) {
    const auto refused = [&](int hidden, const char* format, const char* results, std::vector<std::string> parts) {
      ExchangeOptions options = conformance::options_for(format);
      options.result_format = result_format_named(results);
      parts.push_back("bytes of shared memory in a block; device 0 has");
      conformance::expect_error(world.rank(), results, ErrorKind::unsupported, parts, [&] {
        const Exchange exchange(world, {1, 4, 2, 8, hidden}, options);
      });
    };
    refused(65536, "fp8_block128", "f32",
            {"with result_format f32, 262144 bytes a result", "hidden smaller, or give a"});
    refused(131072, "bf16", "mxfp4", {"in the format bf16, 262144 bytes a message", "Make hidden or experts smaller"});
    const Shape shape{1, 4, 2, 8, 65536};
    const Exchange smaller(world, shape, conformance::options_for("fp8_block128"));
    EXPECT_EQ(smaller.shape(), shape);
  });
}

}  // namespace
}  // namespace ferry::test
