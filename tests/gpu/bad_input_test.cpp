// What a GPU exchange refuses before anything is enqueued, and what its kernels find: each is an error that says which
// argument and why, nothing is written, and the exchange works on. One rank, as every rank checks for itself.
#include <gmock/gmock.h>

#include <cstring>
#include <functional>

#include "ferry/cuda/cuda_world.h"
#include "gpu/device_round.h"
#include "gpu/stream.h"

namespace ferry::test {
namespace {

using conformance::Scenario;
using conformance::ScenarioSettings;
using cuda::cuda_check;
using cuda::DeviceMemory;
using testing::AllOf;
using testing::HasSubstr;

ScenarioSettings settings_for(const char* format, Reduction reduction = Reduction::by_rank) {
  ScenarioSettings settings;
  settings.shape = {.ranks = 1, .experts = 8, .top_k = 3, .max_tokens = 10, .hidden = 64};
  settings.options = conformance::options_for(format, reduction);
  settings.seed = 21;
  return settings;
}

class GpuBadInput : public testing::Test {
 protected:
  void SetUp() override {
    if (num_cuda_devices() == 0) GTEST_SKIP() << "no GPU was found";
    cuda_check(cudaSetDevice(0), "cudaSetDevice");
    make("mxfp8");
  }
  void make(const char* format, Reduction reduction = Reduction::by_rank) {
    exchange.reset();
    const int devices[] = {0};
    worlds = make_cuda_worlds(devices);
    scenario = conformance::make_scenario(settings_for(format, reduction));
    exchange = std::make_unique<Exchange>(*worlds[0], scenario.settings.shape, scenario.settings.options);
  }

  std::string refusal(const std::function<void()>& call, ErrorKind kind = ErrorKind::invalid_argument) {
    try {
      call();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind) << error.what();
      EXPECT_THAT(error.what(), HasSubstr("rank 0"));
      return error.what();
    }
    ADD_FAILURE() << "no error";
    return "";
  }
  std::string refused_dispatch(const std::function<void(DeviceRound&)>& spoil, const CallOptions& call = {}) {
    DeviceRound round(scenario, 0);
    spoil(round);
    std::string text = refusal([&] { exchange->dispatch(round.in, round.out, call); });
    round.fetch();
    round.host.check_untouched();
    return text;
  }
  std::string refused_combine(const std::function<void(DeviceRound&)>& spoil) {
    DeviceRound round(scenario, 0);
    exchange->dispatch(round.in, round.out);
    const CombineInput in = round.combine_in;
    const CombineOutput out = round.combine_out;
    spoil(round);
    std::string text = refusal([&] { exchange->combine(round.combine_in, round.combine_out); });
    exchange->combine(in, out);
    round.fetch();
    round.host.check_tokens();
    return text;
  }
  // A whole good round.
  void expect_works() {
    DeviceRound round(scenario, 0);
    exchange->dispatch(round.in, round.out);
    exchange->combine(round.combine_in, round.combine_out);
    round.fetch();
    round.host.check_rows();
    round.host.check_tokens();
  }

  std::vector<std::unique_ptr<World>> worlds;
  Scenario scenario;
  std::unique_ptr<Exchange> exchange;
};

// A tensor of a call, and how to point it elsewhere.
struct Argument {
  const char* name;
  void (*point)(DeviceRound&, void* elsewhere);
};
constexpr Argument kDispatchArguments[] = {
    {"tokens", [](DeviceRound& r, void* p) { r.in.tokens.data = p; }},
    {"topk_ids", [](DeviceRound& r, void* p) { r.in.topk_ids.data = p; }},
    {"topk_weights", [](DeviceRound& r, void* p) { r.in.topk_weights.data = p; }},
    {"input_scale", [](DeviceRound& r, void* p) { r.in.input_scale = static_cast<const float*>(p); }},
    {"payload", [](DeviceRound& r, void* p) { r.out.payload.data = p; }},
    {"scales", [](DeviceRound& r, void* p) { r.out.scales.data = p; }},
    {"row_offsets", [](DeviceRound& r, void* p) { r.out.row_offsets.data = p; }},
    {"expert_ids", [](DeviceRound& r, void* p) { r.out.expert_ids.data = p; }},
    {"src_info", [](DeviceRound& r, void* p) { r.out.src_info.data = p; }},
};
constexpr Argument kCombineArguments[] = {
    {"rows", [](DeviceRound& r, void* p) { r.combine_in.rows.data = p; }},
    {"tokens", [](DeviceRound& r, void* p) { r.combine_out.tokens.data = p; }},
};

TEST_F(GpuBadInput, RefusesHostMemory) {
  std::vector<double> pageable(4096);
  const cuda::PinnedMemory pinned(32768);
  for (void* memory : {static_cast<void*>(pageable.data()), pinned.data()}) {
    for (const Argument& each : kDispatchArguments)
      EXPECT_THAT(refused_dispatch([&](DeviceRound& round) { each.point(round, memory); }),
                  AllOf(HasSubstr(each.name), HasSubstr("host memory"), HasSubstr("device 0")));
    for (const Argument& each : kCombineArguments)
      EXPECT_THAT(refused_combine([&](DeviceRound& round) { each.point(round, memory); }),
                  AllOf(HasSubstr(each.name), HasSubstr("host memory"), HasSubstr("device 0")));
  }
  expect_works();
}

TEST_F(GpuBadInput, TakesTheTensorsWordForItsDevice) {
  EXPECT_THAT(refused_dispatch([](DeviceRound& r) { r.in.tokens.device = Device::cpu(); }), HasSubstr("host memory"));
  EXPECT_THAT(refused_dispatch([](DeviceRound& r) { r.out.scales.device = Device::cuda(7); }), HasSubstr("device 7"));
}

TEST_F(GpuBadInput, RefusesMemoryOfAnotherGpu) {
  if (num_cuda_devices() < 2) GTEST_SKIP() << "needs 2 GPUs";
  cuda_check(cudaSetDevice(1), "cudaSetDevice");
  const DeviceMemory elsewhere(32768);
  cuda_check(cudaSetDevice(0), "cudaSetDevice");
  for (const Argument& each : kDispatchArguments)
    EXPECT_THAT(refused_dispatch([&](DeviceRound& round) { each.point(round, elsewhere.data()); }),
                AllOf(HasSubstr(each.name), HasSubstr("device 1"), HasSubstr("device 0")));
  for (const Argument& each : kCombineArguments)
    EXPECT_THAT(refused_combine([&](DeviceRound& round) { each.point(round, elsewhere.data()); }),
                AllOf(HasSubstr(each.name), HasSubstr("device 1"), HasSubstr("device 0")));
  expect_works();
}

template <class Pointer>
void move(Pointer& pointer, std::ptrdiff_t bytes) {
  auto* address = const_cast<std::byte*>(static_cast<const std::byte*>(static_cast<const void*>(pointer)));
  pointer = static_cast<Pointer>(static_cast<void*>(address + bytes));
}

TEST_F(GpuBadInput, RefusesMisalignedMemory) {
  EXPECT_THAT(refused_dispatch([](DeviceRound& r) { move(r.in.tokens.data, 2); }),
              AllOf(HasSubstr("tokens"), HasSubstr("16")));
  EXPECT_THAT(refused_dispatch([](DeviceRound& r) {
                r.in.tokens.shape[0] = r.in.topk_ids.shape[0] = r.in.topk_weights.shape[0] = 2;
                r.in.tokens.strides[0] = 68;
              }),
              AllOf(HasSubstr("tokens"), HasSubstr("136"), HasSubstr("16")));
  EXPECT_THAT(refused_dispatch([](DeviceRound& r) { move(r.in.topk_ids.data, 1); }), HasSubstr("topk_ids"));
  EXPECT_THAT(refused_dispatch([](DeviceRound& r) { move(r.in.topk_weights.data, 2); }), HasSubstr("topk_weights"));
  EXPECT_THAT(refused_dispatch([](DeviceRound& r) {
                r.in.input_scale = static_cast<const float*>(r.in.topk_weights.data);
                move(r.in.input_scale, 2);
              }),
              AllOf(HasSubstr("input_scale"), HasSubstr("4")));
  EXPECT_THAT(refused_dispatch([](DeviceRound& r) { move(r.out.payload.data, 8); }),
              AllOf(HasSubstr("payload"), HasSubstr("16")));
  EXPECT_THAT(refused_dispatch([](DeviceRound& r) { move(r.out.row_offsets.data, 2); }), HasSubstr("row_offsets"));
  EXPECT_THAT(refused_dispatch([](DeviceRound& r) { move(r.out.src_info.data, 2); }), HasSubstr("src_info"));
  EXPECT_THAT(refused_combine([](DeviceRound& r) { move(r.combine_in.rows.data, 8); }),
              AllOf(HasSubstr("rows"), HasSubstr("16")));
  EXPECT_THAT(refused_combine([](DeviceRound& r) { move(r.combine_out.tokens.data, 8); }),
              AllOf(HasSubstr("tokens"), HasSubstr("16")));
  expect_works();
}

TEST_F(GpuBadInput, RefusesTiledScalesBetweenVectors) {
  make("nvfp4");
  EXPECT_THAT(refused_dispatch([](DeviceRound& r) { move(r.out.scales.data, 8); }),
              AllOf(HasSubstr("scales"), HasSubstr("16")));
  expect_works();
}

// Scales of one byte in rows need no alignment.
TEST_F(GpuBadInput, TakesScalesAtAnyAddress) {
  DeviceRound round(scenario, 0);
  move(round.out.scales.data, 1);
  exchange->dispatch(round.in, round.out);
  cuda_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  std::vector<std::byte>& scales = round.host.scales;
  cuda_check(cudaMemcpy(scales.data(), round.out.scales.data, scales.size(), cudaMemcpyDeviceToHost), "cudaMemcpy");
  std::vector<std::byte> moved = scales;
  if (!moved.empty()) moved.back() = conformance::kPoison;  // the one byte that lies behind all that was poisoned
  round.fetch();
  scales.swap(moved);
  round.host.check_rows();
}

TEST_F(GpuBadInput, RefusesACapacityBelowTheWorstCase) {
  const std::int64_t least = exchange->layout().min_row_capacity;
  EXPECT_THAT(refused_dispatch([&](DeviceRound& r) { r.out.payload.shape[0] = r.out.src_info.shape[0] = least - 1; }),
              AllOf(HasSubstr("payload"), HasSubstr(std::to_string(least - 1)), HasSubstr(std::to_string(least))));
  expect_works();
}

TEST_F(GpuBadInput, RefusesAStreamOfAnotherGpu) {
  if (num_cuda_devices() < 2) GTEST_SKIP() << "needs 2 GPUs";
  const Stream elsewhere(1);
  CallOptions call;
  call.stream = elsewhere;
  EXPECT_THAT(refused_dispatch([](DeviceRound&) {}, call), AllOf(HasSubstr("device 1"), HasSubstr("device 0")));
  expect_works();
}

TEST_F(GpuBadInput, RefusesACapturedStreamOfAnotherGpu) {
  if (num_cuda_devices() < 2) GTEST_SKIP() << "needs 2 GPUs";
  const Stream elsewhere(1);
  CallOptions call;
  call.stream = elsewhere;
  DeviceRound round(scenario, 0);
  cuda_check(cudaStreamBeginCapture(elsewhere.get(), cudaStreamCaptureModeRelaxed), "cudaStreamBeginCapture");
  const std::string text = refusal([&] { exchange->dispatch(round.in, round.out, call); });
  cudaGraph_t graph = nullptr;
  if (cudaStreamEndCapture(elsewhere.get(), &graph) == cudaSuccess) cudaGraphDestroy(graph);
  cudaGetLastError();
  EXPECT_THAT(text, AllOf(HasSubstr("captured"), HasSubstr("device 0")));
  expect_works();
}

TEST_F(GpuBadInput, TakesACapturedStreamOfItsOwn) {
  const Stream stream(0);
  CallOptions call;
  call.stream = stream;
  DeviceRound round(scenario, 0);
  cuda_check(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
  exchange->dispatch(round.in, round.out, call);
  exchange->combine(round.combine_in, round.combine_out, call);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t replay = nullptr;
  cuda_check(cudaStreamEndCapture(stream.get(), &graph), "cudaStreamEndCapture");
  cuda_check(cudaGraphInstantiate(&replay, graph, 0), "cudaGraphInstantiate");
  for (int turn = 0; turn < 3; ++turn) cuda_check(cudaGraphLaunch(replay, stream.get()), "cudaGraphLaunch");
  round.fetch();
  cudaGraphExecDestroy(replay);
  cudaGraphDestroy(graph);
  round.host.check_rows();
  round.host.check_tokens();
}

TEST_F(GpuBadInput, RefusesNumbersThatCannotBe) {
  CallOptions call;
  call.max_blocks = -3;
  EXPECT_THAT(refused_dispatch([](DeviceRound&) {}, call), AllOf(HasSubstr("max_blocks"), HasSubstr("-3")));
  call.max_blocks = 1;
  EXPECT_THAT(refused_dispatch([](DeviceRound&) {}, call), AllOf(HasSubstr("max_blocks is 1"), HasSubstr("3 or more")));
  DeviceRound open(scenario, 0), fewer(scenario, 0);  // the number of tokens of the open round is not the refused one's
  exchange->dispatch(open.in, open.out);
  fewer.in.tokens.shape[0] = fewer.in.topk_ids.shape[0] = fewer.in.topk_weights.shape[0] = 4;
  EXPECT_THAT(refusal([&] { exchange->dispatch(fewer.in, fewer.out, call); }), HasSubstr("max_blocks"));
  exchange->combine(open.combine_in, open.combine_out);
  open.fetch();
  open.host.check_tokens();
  call = {};
  call.deadline = std::chrono::milliseconds(-1);
  EXPECT_THAT(refused_dispatch([](DeviceRound&) {}, call), AllOf(HasSubstr("deadline"), HasSubstr("-1")));
  ExchangeOptions options = scenario.settings.options;
  options.concurrent = 1000;
  EXPECT_THAT(refusal([&] { Exchange(*worlds[0], scenario.settings.shape, options); }),
              AllOf(HasSubstr("concurrent is 1000"), HasSubstr("0 blocks"), HasSubstr("3 or more")));
  expect_works();
}

// The kernel alone knows how many there must be. It reads none that is not there, and the host is told.
TEST_F(GpuBadInput, ReportsTooFewRowsOfACombine) {
  for (const char* format : {"bf16", "mxfp8"}) {
    make(format);
    DeviceRound round(scenario, 0);
    exchange->dispatch(round.in, round.out);
    round.fetch();
    std::uint32_t laid_out = 0;
    std::memcpy(&laid_out, round.host.row_offsets.data() + exchange->layout().groups * sizeof laid_out,
                sizeof laid_out);
    ASSERT_GT(laid_out, 2u);
    for (const std::uint32_t few : {laid_out - 1, 1u, 0u}) {
      DeviceRound short_of_rows(scenario, 0);
      ConstTensor& rows = short_of_rows.combine_in.rows;
      const auto row_bytes = static_cast<std::size_t>(rows.shape[1]) * size_of(rows.dtype);
      const DeviceMemory others(laid_out * row_bytes);  // not a number from row `few` on
      cuda_check(cudaMemset(others.data(), 0xFF, others.bytes()), "cudaMemset");
      cuda_check(cudaMemset(others.data(), 0, few * row_bytes), "cudaMemset");
      rows.data = others.data();
      rows.shape[0] = few;
      if (few != laid_out - 1) exchange->dispatch(short_of_rows.in, short_of_rows.out);
      exchange->combine(short_of_rows.combine_in, short_of_rows.combine_out);
      short_of_rows.fetch();
      const std::string text = refusal([&] { exchange->check(); });
      EXPECT_THAT(text, HasSubstr("rows of an earlier combine had " + std::to_string(few) + " rows"));
      EXPECT_THAT(text, HasSubstr("laid out " + std::to_string(laid_out)));
      const auto sums = static_cast<std::size_t>(short_of_rows.combine_out.tokens.elements()) * 2;
      for (std::size_t i = 0; few != 0 && i < sums; ++i) ASSERT_EQ(short_of_rows.host.output[i], std::byte{0}) << i;
      exchange->check();  // told once
    }
    expect_works();
  }
}

TEST_F(GpuBadInput, RefusesAMovedExchange) {
  DeviceRound round(scenario, 0);
  Exchange moved = std::move(*exchange);
  try {
    exchange->dispatch(round.in, round.out);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::out_of_order);
    EXPECT_THAT(error.what(), HasSubstr("moved"));
  }
  *exchange = std::move(moved);
  expect_works();
}

// One bad id in an otherwise good round: what the kernel does with it, and what the next call says.
struct BadId {
  const char* what;
  std::int64_t id;  // as k = 1 of token 0
  const char* said;
};
constexpr std::int64_t kTheFirstOfItsToken = 99;  // stands for the id of k = 0

class GpuBadId : public GpuBadInput, public testing::WithParamInterface<BadId> {};

TEST_P(GpuBadId, CountsAsNoneAndIsReportedByTheNextCall) {
  const BadId& bad = GetParam();
  ScenarioSettings settings = settings_for("bf16");
  settings.id_dtype = DType::i64;
  scenario = conformance::make_scenario(settings);
  exchange.reset();
  exchange = std::make_unique<Exchange>(*worlds[0], settings.shape, settings.options);
  DeviceRound good(scenario, 0);
  std::int64_t first = -1;
  cuda_check(cudaMemcpy(&first, good.in.topk_ids.data, sizeof first, cudaMemcpyDeviceToHost), "cudaMemcpy");
  ASSERT_GE(first, 0);
  auto* on_device = static_cast<std::int64_t*>(const_cast<void*>(good.in.topk_ids.data));
  const auto round_with = [&](std::int64_t id, DeviceRound& round) {
    cuda_check(cudaMemcpy(on_device + 1, &id, sizeof id, cudaMemcpyHostToDevice), "cudaMemcpy");
    round.in.topk_ids.data = on_device;
    exchange->dispatch(round.in, round.out);
    cuda_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  };
  DeviceRound with_none(scenario, 0);
  round_with(-1, with_none);
  with_none.fetch();
  DeviceRound with_bad(scenario, 0);
  round_with(bad.id == kTheFirstOfItsToken ? first : bad.id, with_bad);
  const std::string text = refusal([&] { exchange->combine(with_bad.combine_in, with_bad.combine_out); });
  EXPECT_THAT(text, AllOf(HasSubstr("topk_ids[0, 1]"), HasSubstr(bad.said)));
  with_bad.fetch();
  EXPECT_EQ(with_bad.host.payload, with_none.host.payload) << "rows, and everything behind them";
  EXPECT_EQ(with_bad.host.src_info, with_none.host.src_info);
  EXPECT_EQ(with_bad.host.row_offsets, with_none.host.row_offsets);
  exchange->combine(with_bad.combine_in, with_bad.combine_out);  // the call may be made again
  cuda_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  expect_works();
}

TEST_F(GpuBadInput, CountsTheBadIdsOfADispatch) {
  ScenarioSettings settings = settings_for("bf16");
  settings.shape.max_tokens = 2000;  // several blocks rank them
  scenario = conformance::make_scenario(settings);
  exchange.reset();
  exchange = std::make_unique<Exchange>(*worlds[0], settings.shape, settings.options);
  for (const int tokens : {1500, 600}) {  // each block counts its part of them, or all
    DeviceRound round(scenario, 0);
    ASSERT_GE(round.in.tokens.shape[0], tokens);
    round.in.tokens.shape[0] = round.in.topk_ids.shape[0] = round.in.topk_weights.shape[0] = tokens;
    const auto entries = static_cast<std::size_t>(round.in.topk_ids.elements());
    std::vector<std::int32_t> ids(entries);
    auto* on_device = const_cast<void*>(round.in.topk_ids.data);
    cuda_check(cudaMemcpy(ids.data(), on_device, entries * sizeof(std::int32_t), cudaMemcpyDeviceToHost), "cudaMemcpy");
    for (const std::size_t at : {std::size_t{4}, entries / 2, entries - 1}) ids[at] = 777;
    cuda_check(cudaMemcpy(on_device, ids.data(), entries * sizeof(std::int32_t), cudaMemcpyHostToDevice), "cudaMemcpy");
    for (int turn = 0; turn < 2; ++turn) {  // the second round counts anew
      exchange->dispatch(round.in, round.out);
      cuda_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
      EXPECT_THAT(refusal([&] { exchange->combine(round.combine_in, round.combine_out); }),
                  AllOf(HasSubstr("777"), HasSubstr("and so did 2 other bad ids of that dispatch")))
          << tokens;
    }
  }
  expect_works();
}

INSTANTIATE_TEST_SUITE_P(Ids, GpuBadId,
                         testing::Values(BadId{"past_the_last", 8, "8"}, BadId{"below_none", -2, "-2"},
                                         BadId{"wide", std::int64_t{1} << 40, "1099511627776"},
                                         BadId{"wide_and_negative", -(std::int64_t{1} << 40), "-1099511627776"},
                                         BadId{"twice", kTheFirstOfItsToken, "distinct"}),
                         [](const auto& each) { return std::string(each.param.what); });

}  // namespace
}  // namespace ferry::test
