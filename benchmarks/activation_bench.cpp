// Times cuda_swiglu on one GPU beside a kernel that only reads and writes as many bytes. Kernels are chained in a CUDA
// graph over several sets of tensors, more than the L2 cache holds, so that every row comes from memory; the median of
// 21 replays. Prints one JSON line per case. Never checks results.
//
//   activation_bench [FORMAT] [INTER] [ROWS ...]      FORMAT or INTER `all`: each of a list
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "benchmarks/numbers.h"
#include "ferry/cuda/activation.h"
#include "tool/bench/cuda/copy_kernel.h"

namespace {

using namespace ferry;

void check(cudaError_t status) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "activation_bench: %s\n", cudaGetErrorString(status));
  std::exit(1);
}

void* device_memory(std::size_t bytes) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, std::max<std::size_t>(bytes, 256)));
  return memory;
}

constexpr int kReplays = 21;
constexpr std::size_t kColdBytes = std::size_t{512} << 20;  // that a chain goes through before it meets a tensor again
constexpr int kMostSets = 64;

// Microseconds of one of the `count` things that `enqueue` puts on the stream.
float time_chain(cudaStream_t stream, int count, const std::function<void(int)>& enqueue) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < count; ++i) enqueue(i);
  check(cudaStreamEndCapture(stream, &graph));
  check(cudaGraphInstantiate(&exec, graph, 0));
  check(cudaEventCreate(&begin));
  check(cudaEventCreate(&end));
  std::vector<float> times;
  for (int replay = -3; replay < kReplays; ++replay) {
    check(cudaEventRecord(begin, stream));
    check(cudaGraphLaunch(exec, stream));
    check(cudaEventRecord(end, stream));
    check(cudaEventSynchronize(end));
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin, end));
    if (replay >= 0) times.push_back(milliseconds * 1000.0f / static_cast<float>(count));
  }
  check(cudaEventDestroy(begin));
  check(cudaEventDestroy(end));
  check(cudaGraphExecDestroy(exec));
  check(cudaGraphDestroy(graph));
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

struct Machine {
  std::string name;
  int multiprocessors = 0;
  cudaStream_t stream = nullptr;
  double copy_rate = 0;  // bytes per microsecond, read and written, of large copies
  const char* copy_method = "";
};

struct BenchCase {
  AnyFormat format;
  const char* variant;
  DType dtype = DType::bf16;
  SwigluOptions options;
  int inter = 0;
  int rows = 0;
  int groups = 32;
};

// One set of tensors. Every group has the same rows; there is room for half as many again.
struct Tensors {
  SwigluInput in;
  SwigluOutput out;
  std::size_t input_bytes = 0;
  std::size_t moved = 0;  // bytes that the kernel has to read and write; zeros in the last tiles of groups are some
};

bool is_tiled(const BenchCase& c) { return c.options.tiled_scales || c.format.scale_layout() == ScaleLayout::tiled; }

Tensors make_tensors(const BenchCase& c, const std::vector<std::uint16_t>& pattern) {
  Tensors made;
  const std::int64_t capacity = c.rows + c.rows / 2;
  const auto row_bytes = static_cast<std::size_t>(2 * c.inter) * size_of(c.dtype);
  made.input_bytes = static_cast<std::size_t>(c.rows) * row_bytes;
  void* const rows = device_memory(static_cast<std::size_t>(capacity) * row_bytes);
  for (std::size_t at = 0; at < made.input_bytes; at += pattern.size() * 2)
    check(cudaMemcpy(static_cast<std::byte*>(rows) + at, pattern.data(),
                     std::min(pattern.size() * 2, made.input_bytes - at), cudaMemcpyHostToDevice));
  made.in.rows = {rows, c.dtype, {capacity, 2 * c.inter}};
  std::vector<std::uint32_t> offsets{0};
  std::vector<std::uint32_t> tiles;
  std::uint32_t tiles_before = 0;
  for (int group = 1; group <= c.groups; ++group) {
    offsets.push_back(static_cast<std::uint32_t>(static_cast<std::int64_t>(c.rows) * group / c.groups));
    const std::uint32_t first = offsets[offsets.size() - 2];
    tiles.push_back(tiles_before - first / 128);
    tiles_before += (offsets.back() - first + 127) / 128;
  }
  const auto on_device = [](const std::vector<std::uint32_t>& values) {
    void* memory = device_memory(values.size() * 4);
    check(cudaMemcpy(memory, values.data(), values.size() * 4, cudaMemcpyHostToDevice));
    return memory;
  };
  made.in.row_offsets = {on_device(offsets), DType::u32, {c.groups + 1}};
  const auto payload_bytes = static_cast<std::int64_t>(c.format.payload_bytes(c.inter));
  const std::int64_t per_row = scales_per_row(c.format, c.inter);
  made.moved = made.input_bytes + static_cast<std::size_t>(c.rows * (payload_bytes + per_row * c.format.scale_bytes()));
  made.out.payload = {
      device_memory(static_cast<std::size_t>(capacity * payload_bytes)), DType::u8, {capacity, payload_bytes}};
  if (c.format.block() == 0) return made;
  const DType dtype = c.format.scale_bytes() == 4 ? DType::f32 : DType::u8;
  if (is_tiled(c)) {
    const std::int64_t count = (capacity + 127) / 128 + c.groups;
    made.out.scales = {device_memory(static_cast<std::size_t>(count * ((per_row + 3) / 4) * 512)),
                       dtype,
                       {count, (per_row + 3) / 4, 32, 4, 4}};
    made.moved +=
        (std::size_t{tiles_before} * 128 - static_cast<std::size_t>(c.rows)) * static_cast<std::size_t>(per_row);
    made.in.scales_offsets = {on_device(tiles), DType::u32, {c.groups}};
    return made;
  }
  void* const scales = device_memory(static_cast<std::size_t>(capacity * per_row * c.format.scale_bytes()));
  made.out.scales = c.format.scale_layout() == ScaleLayout::transposed ? Tensor(scales, dtype, {per_row, capacity})
                                                                       : Tensor(scales, dtype, {capacity, per_row});
  return made;
}

void release(const Tensors& tensors) {
  for (const void* memory :
       {tensors.in.rows.data, tensors.in.row_offsets.data, tensors.in.scales_offsets.data,
        static_cast<const void*>(tensors.out.payload.data), static_cast<const void*>(tensors.out.scales.data)})
    if (memory != nullptr) check(cudaFree(const_cast<void*>(memory)));
}

void run_case(const Machine& machine, const BenchCase& c) {
  // Values of a common range, so that nothing is zero, subnormal or not finite.
  std::vector<std::uint16_t> pattern(1 << 20);
  std::uint32_t state = 1;
  for (std::uint16_t& value : pattern) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<std::uint16_t>((state >> 16 & 0x80ffu) | 0x3f00u);
  }
  std::vector<Tensors> sets{make_tensors(c, pattern)};
  const std::size_t moved = sets[0].moved;
  const auto count = static_cast<int>(std::clamp<std::size_t>(kColdBytes / moved + 1, 2, kMostSets));
  while (static_cast<int>(sets.size()) < count) sets.push_back(make_tensors(c, pattern));
  const int chain = std::max(count, 20);

  CudaLaunch launch;
  launch.stream = machine.stream;
  const float us = time_chain(machine.stream, chain, [&](int i) {
    const Tensors& t = sets[static_cast<std::size_t>(i % count)];
    cuda_swiglu(c.format, t.in, t.out, c.options, launch);
  });
  // A kernel that only reads and writes as much: one set's rows, and those of the set that was used longest ago.
  const std::size_t written = (moved - sets[0].input_bytes) / 16 * 16;
  const float copy_us = time_chain(machine.stream, chain, [&](int i) {
    check(app::launch_read_and_write(
        const_cast<void*>(sets[static_cast<std::size_t>((i + count / 2) % count)].in.rows.data),
        sets[static_cast<std::size_t>(i % count)].in.rows.data, sets[0].input_bytes, written, machine.multiprocessors,
        machine.stream));
  });
  const double floor_us = static_cast<double>(moved) / machine.copy_rate;
  std::printf(
      "{\"bench\": \"activation\", \"device\": \"%s\", \"format\": \"%s\", \"variant\": \"%s\", \"input\": \"%s\", "
      "\"inter\": %d, \"rows\": %d, \"us\": %.2f, \"bytes\": %zu, \"gb_per_s\": %.0f, \"copy_gb_per_s\": %.0f, "
      "\"copy_method\": \"%s\", \"ratio\": %.3f, \"same_bytes_copied_us\": %.2f, \"ratio_to_same_bytes_copied\": "
      "%.3f}\n",
      machine.name.c_str(), c.format.name(), c.variant, to_string(c.dtype), c.inter, c.rows, us, moved,
      static_cast<double>(moved) / us * 1e-3, machine.copy_rate * 1e-3, machine.copy_method, us / floor_us, copy_us,
      us / copy_us);
  std::fflush(stdout);
  for (const Tensors& tensors : sets) release(tensors);
}

// The fastest copy of 1 GiB.
void measure_copy_rate(Machine& machine) {
  constexpr std::size_t kBytes = std::size_t{1} << 30;
  void* const from = device_memory(kBytes);
  void* const to = device_memory(kBytes);
  check(cudaMemset(from, 1, kBytes));
  for (const app::CopyMethod& method : app::kCopyMethods) {
    const float us = time_chain(machine.stream, 4, [&](int) {
      check(app::launch_copy(method, to, from, kBytes, machine.multiprocessors, machine.stream));
    });
    const double rate = 2.0 * static_cast<double>(kBytes) / us;
    if (rate <= machine.copy_rate) continue;
    machine.copy_rate = rate;
    machine.copy_method = method.name;
  }
  check(cudaFree(from));
  check(cudaFree(to));
}

Machine this_machine() {
  Machine machine;
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, 0));
  machine.name = properties.name;
  machine.multiprocessors = properties.multiProcessorCount;
  check(cudaStreamCreateWithFlags(&machine.stream, cudaStreamNonBlocking));
  measure_copy_rate(machine);
  return machine;
}

// Every format plainly, and what differs in kind: clamped, interleaved, tiled, other inputs.
std::vector<BenchCase> cases_of(const std::string& wanted) {
  std::vector<BenchCase> cases;
  const auto add = [&](const char* format, const char* variant, DType dtype = DType::bf16, SwigluOptions options = {}) {
    if (wanted == "all" || wanted == format) cases.push_back({format_named(format), variant, dtype, options});
  };
  for (const AnyFormat& format : all_formats()) add(format.name(), "plain");
  SwigluOptions clamped;
  clamped.clamped = true;
  SwigluOptions interleaved;
  interleaved.interleaved = true;
  SwigluOptions tiled;
  tiled.tiled_scales = true;
  add("bf16", "clamped", DType::bf16, clamped);
  add("fp8_block128", "clamped", DType::bf16, clamped);
  add("fp8_block128", "plain", DType::f16);
  add("fp8_block128", "plain", DType::f32);
  add("mxfp8", "interleaved", DType::bf16, interleaved);
  add("mxfp8", "tiled", DType::bf16, tiled);
  add("mxfp4", "clamped", DType::bf16, clamped);
  add("nvfp4", "interleaved", DType::bf16, interleaved);
  return cases;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::string format = argc > 1 ? argv[1] : "all";
    std::vector<int> inters{2048, 2880, 4096, 7168};
    if (argc > 2 && std::string(argv[2]) != "all") inters = {app::whole_number("INTER", argv[2], 1)};
    std::vector<int> rows{512, 1024, 4096, 16384};
    if (argc > 3) rows.clear();
    for (int arg = 3; arg < argc; ++arg) rows.push_back(app::whole_number("ROWS", argv[arg], 1));
    const Machine machine = this_machine();
    for (const BenchCase& base : cases_of(format))
      for (const int inter : inters)
        for (const int count : rows) {
          BenchCase one = base;
          one.inter = inter;
          one.rows = count;
          run_case(machine, one);
        }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "activation_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
