// Results in other formats than bf16 on emulated GPUs, against the oracle: rounds of small random shapes by each kind
// of launch, kernels that a program compiles, and worlds that have no kernel for them.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>

#include "conformance/rounds/rank_round.h"
#include "emulated/emulated_ranks.h"
#include "ferry/cuda/compiled_exchange.cuh"
#include "ferry/cuda/cuda_world.h"
#include "ferry/detail/cuda/state/kernel_params.h"
#include "gpu/device_round.h"
#include "gpu/stream.h"
#include "support/own_formats.h"
#include "support/pairs.h"

namespace ferry::test {
namespace {

constexpr int kTeamColumns = 32 * 8;  // of the smallest team

// The format of results, and the reduction.
class EmulatedResults : public testing::TestWithParam<std::tuple<const char*, Reduction>> {
 protected:
  void TearDown() override { change_params<cuda::CombineParams>({}); }

  // Rows of odd seeds are longer, so that teams of several warps share a row. Of two seeds from this one on a format
  // has one with each reduction, and nvfp4 both.
  void run_seeds(std::uint64_t first, const emulated::Gpus& gpus, int concurrent = 1) {
    const auto [results, reduction] = GetParam();
    for (int i = 0; i < 2 && !HasFailure(); ++i)
      if (results == std::string("nvfp4") || meet(number_of_results(results), static_cast<int>(reduction), i, 2))
        run(first + static_cast<std::uint64_t>(i), gpus, concurrent);
  }
  void run(std::uint64_t seed, const emulated::Gpus& gpus, int concurrent = 1,
           EmulatedReach reach = EmulatedReach::direct) {
    const auto [results, reduction] = GetParam();
    Random random(seed * 11 + static_cast<std::uint64_t>(reduction));
    SessionSettings settings = draw_settings(random, "mxfp8", reduction, 1);
    if (reach == EmulatedReach::late_puts) settings.shape.ranks = std::max(settings.shape.ranks, 2);
    settings.shape.experts = std::max(settings.shape.experts, settings.shape.ranks);
    settings.options.result_format = result_format_named(results);
    settings.options.concurrent = concurrent;
    settings.num_rounds = 3;
    if (seed % 2 != 0) settings.shape.hidden = kTeamColumns + 32 * random.between(1, 14);
    const Session session = make_session(settings, seed);
    try {
      run_emulated(session, {.seed = seed}, gpus, reach);
    } catch (const std::exception& error) {
      FAIL() << "seed " << seed << ", " << gpus.multiprocessors << " multiprocessors: " << error.what() << "\n"
             << session.description();
    }
  }
};

TEST_P(EmulatedResults, AgreeWithTheOracle) { run_seeds(1, {}); }

TEST_P(EmulatedResults, AgreeOnLargerGpus) { run_seeds(11, {.multiprocessors = 5}); }

// Rows come through shared memory.
TEST_P(EmulatedResults, AgreeOnFewBlocks) { run_seeds(21, {.multiprocessors = 8}, 2); }

// Results are made in their slots, at the source.
TEST_P(EmulatedResults, AgreeByStores) {
  change_params<cuda::CombineParams>([](cuda::CombineParams& params) { params.roles.in_place = true; });
  run_seeds(31, {});
}

// A team for each token of every size: of one warp, and of all threads of a block.
TEST_P(EmulatedResults, AgreeByTeamsOfEverySize) {
  for (const int threads : {32, 128, 512}) {
    change_params<cuda::CombineParams>([threads](cuda::CombineParams& params) {
      params.roles.in_place = true;  // a team of one warp has no buffer of its own
      params.roles.send_team_threads = threads;
    });
    run(41, {});
  }
}

TEST_P(EmulatedResults, AgreeByLatePuts) {
  const std::string results = std::get<0>(GetParam());
  if (results != "f32" && results != "fp8_block128" && results != "nvfp4")
    GTEST_SKIP() << "the kernels of late worlds are compiled for these three";
  for (std::uint64_t seed = 51; seed <= 53 && !HasFailure(); ++seed) run(seed, {}, 1, EmulatedReach::late_puts);
}

constexpr const char* kResultFormats[] = {
    "f16", "f32", "fp8_block128", "fp8_block128_ue8m0", "mxfp8", "mxfp6_e2m3", "mxfp6_e3m2", "mxfp4", "nvfp4"};
INSTANTIATE_TEST_SUITE_P(Formats, EmulatedResults,
                         testing::Combine(testing::ValuesIn(kResultFormats),
                                          testing::Values(Reduction::by_rank, Reduction::exact)),
                         [](const auto& each) {
                           return std::string(std::get<0>(each.param)) +
                                  (std::get<1>(each.param) == Reduction::by_rank ? "_by_rank" : "_exact");
                         });

TEST(EmulatedResultFormats, AreAllThatTheLibraryNames) {
  EXPECT_EQ(std::size(kResultFormats) + 1, result_formats().size());
  EXPECT_EQ(ResultFormats::kCount, result_formats().size());
  for (const AnyFormat& format : result_formats())
    EXPECT_NE(cuda::direct_launchers().find_combine(format.name()), nullptr) << format.name();
}

// ---- kernels that a program compiles

struct Sums {
  float* values;
  int hidden;
  __device__ void epilogue(int token, int column, const float* sums, int count) const {
    for (int i = 0; i < count; ++i) values[token * hidden + column + i] = sums[i];
  }
};

conformance::ScenarioSettings settings_with(const AnyFormat& results, Reduction reduction) {
  conformance::ScenarioSettings settings;
  settings.shape = {.ranks = 2, .experts = 5, .top_k = 3, .max_tokens = 6, .hidden = 352};
  settings.options = conformance::options_for("mxfp8", reduction);
  settings.options.result_format = results;
  settings.output_dtype = DType::f32;
  return settings;
}

// A round by kernels with the format of results `results`; `run` is called with the exchange and the round.
template <class Compiled, class Run>
void run_compiled(const AnyFormat& results, const Run& run, Reduction reduction = Reduction::by_rank) {
  emulated::set_gpus({});
  emulated::reset({});
  const conformance::Scenario scenario = conformance::make_scenario(settings_with(results, reduction));
  run_cuda_ranks(2, false, [&](World& world) {
    cuda::cuda_check(cudaSetDevice(world.rank()), "cudaSetDevice");
    const Stream stream(world.rank());
    Compiled exchange(world, scenario.settings.shape, scenario.settings.options);
    DeviceRound round(scenario, world.rank());
    run(exchange, round, CallOptions{.stream = stream.get()});
    round.fetch();
    round.host.check_tokens();
  });
  EXPECT_EQ(emulated::failure(), "");
}

TEST(CompiledResults, ComeWithAnEpilogueOfTheProgram) {
  using Compiled = cuda::CompiledExchange<Mxfp8, Sums, cuda::DirectFabric<>, Fp8Block128>;
  run_compiled<Compiled>(format_named("fp8_block128"), [](Compiled& exchange, DeviceRound& round, CallOptions call) {
    const Sums sums{static_cast<float*>(const_cast<void*>(round.combine_out.tokens.data)), 352};
    exchange.dispatch(round.in, round.out, sums, call);
    exchange.combine(round.combine_in, {}, sums, call);
  });
}

// Hooks of an earlier call are not taken for those of a later one.
TEST(CompiledResults, AreNotMadeWithoutTheHooks) {
  using Compiled = cuda::CompiledExchange<Mxfp8, Sums, cuda::DirectFabric<>, Fp8Block128>;
  run_compiled<Compiled>(format_named("fp8_block128"), [](Compiled& compiled, DeviceRound& round, CallOptions call) {
    Exchange& exchange = compiled.exchange();
    const Sums sums{static_cast<float*>(const_cast<void*>(round.combine_out.tokens.data)), 352};
    const auto refuses = [&](const char* name, const auto& calls) {
      conformance::expect_error(exchange.rank(), name, ErrorKind::invalid_argument, {"hooks", "CompiledExchange"},
                                calls);
    };
    refuses("dispatch", [&] { exchange.dispatch(round.in, round.out, call); });
    refuses("dispatch_async", [&] { exchange.dispatch_async(round.in, call); });
    compiled.dispatch(round.in, round.out, sums, call);
    refuses("combine", [&] { exchange.combine(round.combine_in, round.combine_out, call); });
    exchange.combine_async(round.combine_in, call);
    refuses("combine_wait", [&] { exchange.combine_wait(round.combine_out, call); });
    compiled.combine_wait({}, sums, call);
  });
}

// The oracle knows no bound of the error of its sums, so rows travel.
TEST(CompiledResults, HaveAFormatOfTheProgram) {
  using Compiled = cuda::CompiledExchange<Mxfp8, cuda::NoHooks, cuda::DirectFabric<>, Int8Columns>;
  const auto run = [](Compiled& exchange, DeviceRound& round, CallOptions call) {
    exchange.dispatch(round.in, round.out, call);
    exchange.combine_async(round.combine_in, call);
    exchange.combine_wait(round.combine_out, call);
  };
  run_compiled<Compiled>(any_format<Int8Columns>(), run, Reduction::exact);
}

TEST(CompiledResults, AreTheLibrarysWithoutHooks) {
  using Compiled = cuda::CompiledExchange<Mxfp8>;
  run_compiled<Compiled>(format_named("nvfp4"), [](Compiled& exchange, DeviceRound& round, CallOptions call) {
    exchange.dispatch(round.in, round.out, call);
    exchange.combine(round.combine_in, round.combine_out, call);
  });
}

// ---- refused when the exchange is made, on every rank

TEST(RefusedResults, NameTheFormatAndWhatToDo) {
  emulated::set_gpus({});
  emulated::reset({});
  const Shape shape{.ranks = 2, .experts = 4, .top_k = 2, .max_tokens = 4, .hidden = 64};
  using Hooked = cuda::CompiledExchange<Mxfp8, Sums>;
  ExchangeOptions options = conformance::options_for("mxfp8");
  options.result_format = format_named("fp8_block128");
  ExchangeOptions own = conformance::options_for("mxfp8");
  own.result_format = any_format<Int8Columns>();
  run_cuda_ranks(2, false, [&](World& world) {
    EXPECT_TRUE(world.capabilities().result_formats);
    conformance::expect_error(world.rank(), "hooks whose kernels send bf16", ErrorKind::unsupported,
                              {"rank 0", "fp8_block128", "Results", "CompiledExchange"},
                              [&] { const Hooked exchange(world, shape, options); });
    conformance::expect_error(world.rank(), "results in a format of the program", ErrorKind::unsupported,
                              {"rank 0", "int8_columns", "Results", "CompiledExchange"},
                              [&] { const Exchange exchange(world, shape, own); });
  });
  EXPECT_EQ(emulated::failure(), "");
}

}  // namespace
}  // namespace ferry::test
