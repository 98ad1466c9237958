// Times dispatch, and the chained dispatch-combine pair in whole and in split calls, on the GPUs of this machine:
// captured in a graph, replayed back to back, the slowest rank's time per round. Also what a call costs its host thread
// without a graph. Prints one JSON line per number of tokens, with the floor, the bound and the SM-time of each
// operation (docs/lab/measuring.md). Never checks results.
//
//   cuda_bench [--speeds=WIRE,LATENCY,COPIES] RANKS HIDDEN TOP_K EXPERTS FORMAT BLOCKS[/BLOCKS] N[/MAX] [N[/MAX] ...]
//
// --speeds: those of the machine, as a line of an earlier run says them (GB/s, us, GB/s), in place of measuring them,
//   which takes ten seconds; "none": no floors and bounds.
// FORMAT: that of the tokens, and behind commas what the calls are asked for:
//   given         tokens come encoded (given:NAME says the same)
//   replay        dispatches are given the handle of an earlier one
//   rows=ORDER    by_expert, by_source, padded or in_place
//   results=NAME  the format in which results travel
// BLOCKS: max_blocks of the calls, and behind a slash that of the second halves of split calls. 0: no limit.
// MAX: max_tokens of the exchange, N or more; N if it is left out.
#include <cuda_runtime_api.h>

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "benchmarks/cuda_bench_beside.h"
#include "benchmarks/numbers.h"
#include "ferry/cuda/cuda_world.h"
#include "ferry/ferry.h"
#include "tool/bench/cuda/kernel_times.h"

namespace {

using namespace ferry;

void check(cudaError_t status) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "cuda_bench: %s\n", cudaGetErrorString(status));
  std::exit(1);
}

template <class T>
T* device_array(std::size_t count, const std::vector<T>& values = {}) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, std::max<std::size_t>(count * sizeof(T), 256)));
  check(cudaMemset(memory, 0, std::max<std::size_t>(count * sizeof(T), 256)));
  if (!values.empty()) check(cudaMemcpy(memory, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  return static_cast<T*>(memory);
}

struct Settings {
  Shape shape;
  AnyFormat format = format_named("bf16");
  bool given = false;   // tokens come encoded
  bool replay = false;  // dispatches are given a handle
  RowOrder rows = RowOrder::by_expert;
  AnyFormat results = format_named("bf16");
  int max_blocks = 0;
  int wait_blocks = 0;                   // of the second halves of split calls
  std::optional<app::GpuSpeeds> speeds;  // nothing: no floors and bounds
};

// A rank's tensors on its device; freed with the process.
struct RankTensors {
  DispatchInput in;
  DispatchOutput out;
  CombineInput rows;
  CombineOutput sums;
  std::vector<std::int32_t> ids;  // on the host
};

RankTensors make_tensors(const Settings& settings, const RowLayout& layout, int rank, int n) {
  const Shape& s = settings.shape;
  std::mt19937 random(static_cast<unsigned>(rank) * 7919u + 1u);
  std::vector<std::uint16_t> tokens(static_cast<std::size_t>(n) * static_cast<std::size_t>(s.hidden));
  for (std::uint16_t& value : tokens)
    value = static_cast<std::uint16_t>(0x3E00u + random() % 0x300u + (random() % 2u) * 0x8000u);
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> experts(static_cast<std::size_t>(s.experts));
  std::iota(experts.begin(), experts.end(), 0);
  for (int token = 0; token < n; ++token) {
    for (int k = 0; k < s.top_k; ++k)
      std::swap(experts[static_cast<std::size_t>(k)],
                experts[static_cast<std::size_t>(k) + random() % (experts.size() - static_cast<std::size_t>(k))]);
    ids.insert(ids.end(), experts.begin(), experts.begin() + s.top_k);
  }
  const std::int64_t capacity = layout.least_rows(settings.rows);
  RankTensors made;
  made.in.tokens = {device_array(tokens.size(), tokens), DType::bf16, {n, s.hidden}};
  if (settings.given) {
    made.in.tokens = {made.in.tokens.data, DType::u8, {n, layout.payload_row_bytes}};
    if (layout.scales_per_row != 0)
      made.in.token_scales = {
          device_array<std::uint8_t>(static_cast<std::size_t>(n * layout.scales_per_row) * size_of(layout.scale_dtype)),
          layout.scale_dtype,
          {n, layout.scales_per_row}};
  }
  made.in.topk_ids = {device_array(ids.size(), ids), DType::i32, {n, s.top_k}};
  made.in.topk_weights = {device_array(ids.size(), std::vector<float>(ids.size(), 0.125f)), DType::f32, {n, s.top_k}};
  for (const TensorSpec& spec : dispatch_outputs(layout, capacity, settings.rows))
    made.out.*spec.field = {device_array<std::uint8_t>(spec.bytes()), spec.dtype, spec.shape};
  made.rows.rows = {
      device_array<std::uint16_t>(static_cast<std::size_t>(capacity) * static_cast<std::size_t>(s.hidden)),
      DType::bf16,
      {capacity, s.hidden}};
  made.in.row_order = settings.rows;
  if (settings.replay)
    made.out.handle = {
        device_array<std::uint8_t>(static_cast<std::size_t>(layout.handle_bytes)), DType::u8, {layout.handle_bytes}};
  made.ids = std::move(ids);
  made.sums.tokens = {device_array<std::uint16_t>(tokens.size()), DType::bf16, {n, s.hidden}};
  return made;
}

// Rounds in a graph: enough that its launch is a small part of the time.
int chain_of(int n) { return n <= 256 ? 40 : 10; }
constexpr int kReplays = 21;

// Long enough for the clocks of an idle GPU to rise; the same number of replays on all ranks.
void warm_up(World& world, cudaStream_t stream, cudaGraphExec_t exec) {
  const auto begin = std::chrono::steady_clock::now();
  for (std::uint8_t done = 0; done == 0;) {
    for (int i = 0; i < 20; ++i) check(cudaGraphLaunch(exec, stream));
    check(cudaStreamSynchronize(stream));
    const std::uint8_t mine = std::chrono::steady_clock::now() - begin > std::chrono::milliseconds(300) ? 1 : 0;
    std::vector<std::uint8_t> all(static_cast<std::size_t>(world.size()));
    world.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)), {}, kDefaultDeadline);
    done = *std::max_element(all.begin(), all.end());
  }
}

// Microseconds per round of `enqueue`, `chain` of them in a graph: one value per replay.
std::vector<float> time_chain(World& world, cudaStream_t stream, int chain, const std::function<void()>& enqueue) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < chain; ++i) enqueue();
  check(cudaStreamEndCapture(stream, &graph));
  check(cudaGraphInstantiate(&exec, graph, 0));
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  check(cudaEventCreate(&begin));
  check(cudaEventCreate(&end));
  warm_up(world, stream, exec);
  std::vector<float> times;
  for (int replay = -3; replay < kReplays; ++replay) {
    world.barrier();
    check(cudaEventRecord(begin, stream));
    check(cudaGraphLaunch(exec, stream));
    check(cudaEventRecord(end, stream));
    check(cudaEventSynchronize(end));
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin, end));
    if (replay >= 0) times.push_back(milliseconds * 1000.0f / static_cast<float>(chain));
  }
  check(cudaGraphExecDestroy(exec));
  check(cudaGraphDestroy(graph));
  return times;
}

// The median over replays of the slowest rank's time.
float slowest_median(World& world, const std::vector<float>& mine) {
  std::vector<float> all(mine.size() * static_cast<std::size_t>(world.size()));
  world.all_gather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)), {}, kDefaultDeadline);
  std::vector<float> slowest(mine.size());
  for (std::size_t i = 0; i < all.size(); ++i) slowest[i % mine.size()] = std::max(slowest[i % mine.size()], all[i]);
  std::sort(slowest.begin(), slowest.end());
  return slowest[slowest.size() / 2];
}

struct HostTimes {
  float dispatch = 0;
  float combine = 0;
};

// Microseconds of a call on the host, the medians of this rank. Few calls are enqueued at once, so none waits for room.
HostTimes time_host(World& world, cudaStream_t stream, const std::function<void()>& dispatch,
                    const std::function<void()>& combine) {
  constexpr int kRounds = 400, kAtOnce = 20;
  const auto microseconds = [](const std::function<void()>& call) {
    const auto begin = std::chrono::steady_clock::now();
    call();
    return std::chrono::duration<float, std::micro>(std::chrono::steady_clock::now() - begin).count();
  };
  std::vector<float> dispatches, combines;
  for (int round = 0; round < kRounds; ++round) {
    dispatches.push_back(microseconds(dispatch));
    combines.push_back(microseconds(combine));
    if (round % kAtOnce != kAtOnce - 1) continue;
    check(cudaStreamSynchronize(stream));
    world.barrier();
  }
  std::sort(dispatches.begin(), dispatches.end());
  std::sort(combines.begin(), combines.end());
  return {dispatches[kRounds / 2], combines[kRounds / 2]};
}

// From now on dispatches repeat the routing of this one.
void keep_routing(Exchange& exchange, RankTensors& tensors, const CallOptions& call, cudaStream_t stream) {
  exchange.dispatch(tensors.in, tensors.out, call);
  check(cudaStreamSynchronize(stream));
  tensors.in.handle = tensors.rows.handle = tensors.out.handle;
  tensors.in.topk_ids = tensors.in.topk_weights = {};
  tensors.out.handle = {};
}

RowOrder order_named(std::string_view name) {
  for (const RowOrder order : {RowOrder::by_expert, RowOrder::by_source, RowOrder::padded, RowOrder::in_place})
    if (to_string(order) == name) return order;
  throw Error(ErrorKind::invalid_argument, "FORMAT: there is no order of rows \"" + std::string(name) + "\"");
}

// FORMAT of the command line.
void read_format(Settings& settings, std::string_view words) {
  const auto rest_after = [](std::string_view word, std::string_view start) {
    return word.starts_with(start) ? word.substr(start.size()) : std::string_view();
  };
  constexpr std::string_view kGiven = "given:";
  settings.given = words.starts_with(kGiven);
  if (settings.given) words.remove_prefix(kGiven.size());
  settings.format = format_named(words.substr(0, words.find(',')));
  for (std::size_t comma = words.find(','); comma != std::string_view::npos; comma = words.find(',')) {
    words.remove_prefix(comma + 1);
    const std::string_view word = words.substr(0, words.find(','));
    if (const std::string_view order = rest_after(word, "rows="); !order.empty())
      settings.rows = order_named(order);
    else if (const std::string_view results = rest_after(word, "results="); !results.empty())
      settings.results = result_format_named(results);
    else if (word == "given")
      settings.given = true;
    else if (word == "replay")
      settings.replay = true;
    else
      throw Error(ErrorKind::invalid_argument, "FORMAT: there is no \"" + std::string(word) + "\"");
  }
}

struct Times {
  float dispatch = 0, pair = 0, split_dispatch = 0, split_pair = 0;
  HostTimes host;
};

void print_line(const Settings& settings, const Shape& shape, int n, const Times& times, const std::string& more) {
  fmt::print(
      "{{\"n\": {}, \"max_tokens\": {}, \"hidden\": {}, \"top_k\": {}, \"experts\": {}, \"ranks\": {}, "
      "\"format\": \"{}\", \"given\": {}, \"replay\": {}, \"rows\": \"{}\", \"results\": \"{}\", \"max_blocks\": {}, "
      "\"wait_blocks\": {}, \"dispatch_us\": {:.2f}, \"pair_us\": {:.2f}, \"combine_us\": {:.2f}, "
      "\"split_dispatch_us\": {:.2f}, \"split_pair_us\": {:.2f}, "
      "\"host_dispatch_us\": {:.2f}, \"host_combine_us\": {:.2f}{}}}\n",
      n, shape.max_tokens, shape.hidden, shape.top_k, shape.experts, shape.ranks, settings.format.name(),
      settings.given, settings.replay, to_string(settings.rows), settings.results.name(), settings.max_blocks,
      settings.wait_blocks, times.dispatch, times.pair, times.pair - times.dispatch, times.split_dispatch,
      times.split_pair, times.host.dispatch, times.host.combine, more);
  std::fflush(stdout);
}

app::BenchCase case_of(const Settings& settings, int n) {
  app::BenchCase bench;
  bench.shape = settings.shape;
  bench.shape.max_tokens = n;
  bench.format = settings.format;
  bench.results = settings.results;
  bench.rows = settings.rows;
  bench.encoded = settings.given;
  bench.replays = settings.replay;
  return bench;
}

// BLOCKS of the command line.
void read_blocks(Settings& settings, std::string_view text) {
  const app::TwoTexts blocks = app::split_at(text, '/');
  settings.max_blocks = settings.wait_blocks = app::whole_number("BLOCKS", blocks.before, 0);
  if (blocks.has_mark) settings.wait_blocks = app::whole_number("BLOCKS of second halves", blocks.behind, 0);
}

struct Tokens {
  int n = 0, max_tokens = 0;
};

// N or N/MAX of the command line.
Tokens read_tokens(std::string_view text) {
  const app::TwoTexts numbers = app::split_at(text, '/');
  const int n = app::whole_number("N", numbers.before, 0);
  const int least = std::max(n, 1);
  return {n, numbers.has_mark ? app::whole_number("MAX", numbers.behind, least) : least};
}

// n of `max_tokens` tokens.
void run_rank(World& world, const Settings& settings, const Tokens& tokens) {
  const int rank = world.rank(), n = tokens.n;
  check(cudaSetDevice(rank));
  ExchangeOptions options;
  options.format = settings.format;
  options.result_format = settings.results;
  if (settings.rows != RowOrder::by_expert) options.row_orders = {settings.rows};
  Shape shape = settings.shape;
  shape.max_tokens = tokens.max_tokens;
  Exchange exchange(world, shape, options);
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  RankTensors tensors = make_tensors(settings, exchange.layout(), rank, n);
  CallOptions call;
  call.stream = stream;
  call.max_blocks = settings.max_blocks;
  if (settings.replay) keep_routing(exchange, tensors, call, stream);
  const auto dispatch = [&] { exchange.dispatch(tensors.in, tensors.out, call); };
  const auto combine = [&] { exchange.combine(tensors.rows, tensors.sums, call); };
  const auto pair = [&] {
    dispatch();
    combine();
  };
  CallOptions wait = call;
  wait.max_blocks = settings.wait_blocks;
  const auto dispatch_in_halves = [&] {
    exchange.dispatch_async(tensors.in, call);
    exchange.dispatch_wait(tensors.out, wait);
  };
  const auto in_halves = [&] {
    dispatch_in_halves();
    exchange.combine_async(tensors.rows, call);
    exchange.combine_wait(tensors.sums, wait);
  };
  const auto time = [&](const std::function<void()>& round) {
    return slowest_median(world, time_chain(world, stream, chain_of(n), round));
  };
  Times times;
  times.dispatch = time(dispatch);
  times.pair = time(pair);
  times.split_dispatch = time(dispatch_in_halves);
  times.split_pair = time(in_halves);
  times.host = time_host(world, stream, dispatch, combine);
  const app::Kernels kernels{app::time_kernels(world, stream, dispatch), app::time_kernels(world, stream, pair)};
  const app::GpuBytes bytes = bytes_of(world, case_of(settings, n), tensors.ids);
  if (rank == 0)
    print_line(settings, shape, n, times, beside(settings.speeds, bytes, kernels, {times.dispatch, times.pair}));
  world.barrier();
}

}  // namespace

int main(int argc, char** argv) {
  constexpr std::string_view kSpeeds = "--speeds=";
  const char* given_speeds = nullptr;
  if (argc > 1 && std::string_view(argv[1]).starts_with(kSpeeds)) {
    given_speeds = argv[1] + kSpeeds.size();
    --argc;
    ++argv;
  }
  if (argc < 8) {
    std::fprintf(stderr,
                 "usage: cuda_bench [--speeds=WIRE,LATENCY,COPIES] RANKS HIDDEN TOP_K EXPERTS FORMAT BLOCKS[/BLOCKS] "
                 "N[/MAX] [N[/MAX] ...]\n");
    return 2;
  }
  try {
    Settings settings;
    settings.shape = {app::whole_number("RANKS", argv[1], 1, kMaxGpuRanks), app::whole_number("EXPERTS", argv[4], 1),
                      app::whole_number("TOP_K", argv[3], 1, kMaxTopK), 1, app::whole_number("HIDDEN", argv[2], 1)};
    read_format(settings, argv[5]);
    read_blocks(settings, argv[6]);
    std::vector<Tokens> all;
    for (int arg = 7; arg < argc; ++arg) all.push_back(read_tokens(argv[arg]));
    settings.speeds =
        given_speeds != nullptr ? app::speeds_named(given_speeds) : app::measured_speeds(settings.shape.ranks);
    for (const Tokens& tokens : all)
      run_cuda_ranks(settings.shape.ranks, false, [&](World& world) { run_rank(world, settings, tokens); });
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cuda_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
