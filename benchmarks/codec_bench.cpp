// How fast one core encodes, decodes and activates rows, by format and vector instruction set. GB/s count the
// bf16 bytes of the rows (activation: of its input), whatever the format makes of them.
//
//   codec_bench --benchmark_filter='encode/(mxfp8|nvfp4)/.*best'
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "cpu/formats/formats.h"
#include "ferry/detail/formats/rounded.h"
#include "ferry/rows/activation.h"

namespace {

constexpr int kHidden = 7168;
constexpr int kRows = 32;  // 448 KiB of bf16: the rows of one call stay in a core's second-level cache

std::vector<std::uint16_t> normal_rows(int rows, int columns) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<std::uint16_t> bits(static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns));
  for (std::uint16_t& one : bits)
    one = static_cast<std::uint16_t>(ferry::codec::bf16_of(ferry::codec::bits_of(normal(random))));
  return bits;
}

struct alignas(64) Line {
  std::byte bytes[64];
};
std::vector<Line> lines(std::size_t bytes) { return std::vector<Line>(bytes / sizeof(Line) + 1); }
std::byte* start_of(std::vector<Line>& memory) { return memory.front().bytes; }

void report(benchmark::State& state, std::size_t bytes_each_time) {
  const double bytes = static_cast<double>(state.iterations()) * static_cast<double>(bytes_each_time);
  state.counters["GB/s"] = benchmark::Counter(bytes / 1e9, benchmark::Counter::kIsRate);
}

void encode_rows(benchmark::State& state, ferry::AnyFormat format) {
  const std::vector<std::uint16_t> rows = normal_rows(kRows, kHidden);
  const std::size_t message = ferry::message_bytes(format, kHidden);
  std::vector<Line> out = lines(message * kRows);
  for (auto _ : state) {
    for (std::size_t row = 0; row < kRows; ++row) {
      std::byte* const to = start_of(out) + row * message;
      benchmark::DoNotOptimize(format.encode(ferry::SerialGroup{}, {rows.data() + row * kHidden, ferry::DType::bf16},
                                             kHidden, 1.0f, to, to + format.payload_bytes(kHidden)));
    }
    benchmark::ClobberMemory();
  }
  report(state, rows.size() * 2);
}

void decode_rows(benchmark::State& state, ferry::AnyFormat format) {
  const std::vector<std::uint16_t> rows = normal_rows(1, kHidden);
  std::vector<Line> message = lines(ferry::message_bytes(format, kHidden));
  std::byte* const payload = start_of(message);
  std::byte* const scales = payload + format.payload_bytes(kHidden);
  format.encode(ferry::SerialGroup{}, {rows.data(), ferry::DType::bf16}, kHidden, 1.0f, payload, scales);
  std::vector<float> out(kHidden);
  for (auto _ : state) {
    format.decode(ferry::SerialGroup{}, payload, scales, kHidden, 1.0f, out.data());
    benchmark::ClobberMemory();
  }
  report(state, rows.size() * 2);
}

void activate_rows(benchmark::State& state, ferry::AnyFormat format, bool interleaved, bool clamped) {
  constexpr std::int64_t kInter = 2048;
  const std::vector<std::uint16_t> rows = normal_rows(kRows, 2 * kInter);
  const std::uint32_t row_offsets[] = {0, kRows};
  const std::uint32_t scales_offsets[] = {0};
  const auto payload_bytes = static_cast<std::int64_t>(format.payload_bytes(kInter));
  const std::int64_t per_row = scales_per_row(format, kInter);
  std::vector<Line> payload = lines(static_cast<std::size_t>(kRows * payload_bytes));
  std::vector<Line> scales = lines(static_cast<std::size_t>(256 * (per_row + 3) * 4));

  ferry::SwigluInput in;
  in.rows = ferry::ConstTensor(rows.data(), ferry::DType::bf16, {kRows, 2 * kInter});
  in.row_offsets = ferry::ConstTensor(row_offsets, ferry::DType::u32, {2});
  ferry::SwigluOutput out;
  out.payload = ferry::Tensor(payload.data(), ferry::DType::u8, {kRows, payload_bytes});
  const ferry::DType dtype = format.scale_bytes() == 4 ? ferry::DType::f32 : ferry::DType::u8;
  switch (format.scale_layout()) {
    case ferry::ScaleLayout::none:
      break;
    case ferry::ScaleLayout::row_major:
      out.scales = ferry::Tensor(scales.data(), dtype, {kRows, per_row});
      break;
    case ferry::ScaleLayout::transposed:
      out.scales = ferry::Tensor(scales.data(), dtype, {per_row, kRows});
      break;
    case ferry::ScaleLayout::tiled:
      out.scales = ferry::Tensor(scales.data(), dtype, {2, (per_row + 3) / 4, 32, 4, 4});
      in.scales_offsets = ferry::ConstTensor(scales_offsets, ferry::DType::u32, {1});
      break;
  }
  ferry::SwigluOptions options;
  options.interleaved = interleaved;
  options.clamped = clamped;
  for (auto _ : state) {
    ferry::swiglu(format, in, out, options);
    benchmark::ClobberMemory();
  }
  report(state, rows.size() * 2);
}

void register_all() {
  using ferry::cpu::SimdLevel;
  for (const SimdLevel level : ferry::cpu::kSimdLevels) {
    if (!ferry::cpu::supports(level)) continue;
    const bool best = level == ferry::cpu::best_simd_level();
    const std::string suffix = std::string("/") + ferry::cpu::to_string(level) + (best ? "/best" : "");
    for (const ferry::AnyFormat& format : ferry::cpu::formats_at(level)) {
      const std::string name = format.name();
      benchmark::RegisterBenchmark(("encode/" + name + suffix).c_str(), encode_rows, format);
      benchmark::RegisterBenchmark(("decode/" + name + suffix).c_str(), decode_rows, format);
    }
  }
  for (const ferry::AnyFormat& format : ferry::all_formats()) {
    const std::string name = std::string("swiglu/") + format.name();
    benchmark::RegisterBenchmark(name.c_str(), activate_rows, format, false, false);
    benchmark::RegisterBenchmark((name + "/interleaved").c_str(), activate_rows, format, true, false);
    benchmark::RegisterBenchmark((name + "/clamped").c_str(), activate_rows, format, false, true);
  }
}

}  // namespace

int main(int argc, char** argv) {
  register_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  const bool matched = benchmark::RunSpecifiedBenchmarks() != 0;  // where the filter matches nothing, it says so
  benchmark::Shutdown();
  return matched ? 0 : 2;
}
