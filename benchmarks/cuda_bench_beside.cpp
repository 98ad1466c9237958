#include "benchmarks/cuda_bench_beside.h"

#include <fmt/core.h>

#include <algorithm>
#include <span>

#include "benchmarks/numbers.h"
#include "ferry/cuda/cuda_world.h"
#include "tool/bench/cuda/rank_speeds.h"

namespace ferry::app {
namespace {

// What stands beside the times of a round: dispatch, combine and pair, in microseconds.
struct Beside {
  std::optional<double> floor, bound, sm;
};
const char* const kOperations[] = {"dispatch", "combine", "pair"};

// The floors, bounds and SM-times as members of a JSON object, each behind a comma.
std::string text_of(const std::array<Beside, 3>& beside) {
  std::string text;
  for (std::size_t i = 0; i < beside.size(); ++i)
    for (const auto& [name, value] :
         {std::pair{"floor", beside[i].floor}, {"bound", beside[i].bound}, {"sm", beside[i].sm}})
      if (value) text += fmt::format(", \"{}_{}_us\": {:.2f}", kOperations[i], name, *value * 1e6);
  return text;
}
std::string text_of(const std::vector<GpuKernel>& kernels) {
  std::string text;
  for (const GpuKernel& kernel : kernels) text += fmt::format("{}{}", text.empty() ? "" : ", ", kernel.blocks);
  return text;
}

}  // namespace

std::optional<GpuSpeeds> speeds_named(const std::string& text) {
  if (text == "none") return std::nullopt;
  const TwoTexts wire = split_at(text, ','), others = split_at(wire.behind, ',');
  if (!others.has_mark)
    throw Error(ErrorKind::invalid_argument, "--speeds is \"" + text + "\"; it must be WIRE,LATENCY,COPIES or none");
  GpuSpeeds speeds;
  speeds.wire_bytes_per_second = finite_number("WIRE of --speeds", wire.before) * 1e9;
  speeds.wire_latency = finite_number("LATENCY of --speeds", others.before) * 1e-6;
  speeds.copy_bytes_per_second = finite_number("COPIES of --speeds", others.behind) * 1e9;
  return speeds;
}
GpuSpeeds measured_speeds(int ranks) {
  GpuSpeeds speeds;
  run_cuda_ranks(ranks, false, [&](World& world) { measure_rank_speeds(world, world.rank(), false, speeds); });
  find_rates(speeds);
  return speeds;
}

GpuBytes bytes_of(World& world, const BenchCase& bench, const std::vector<std::int32_t>& mine) {
  std::vector<std::int32_t> all(mine.size() * static_cast<std::size_t>(world.size()));
  world.all_gather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)), {}, kDefaultDeadline);
  std::vector<std::vector<std::int32_t>> ids;
  for (std::size_t at = 0; at < all.size(); at += mine.size())
    ids.emplace_back(all.begin() + static_cast<std::ptrdiff_t>(at),
                     all.begin() + static_cast<std::ptrdiff_t>(at + mine.size()));
  ids.resize(static_cast<std::size_t>(world.size()));  // without tokens there are none
  return gpu_bytes_of(bench, ids);
}

std::string beside(const std::optional<GpuSpeeds>& speeds, const GpuBytes& bytes, const Kernels& kernels,
                   std::array<double, 2> us) {
  std::array<Beside, 3> all;
  if (speeds) {
    all[0] = {floor_of(bytes.dispatch, *speeds), bound_of(bytes.dispatch, *speeds), {}};
    all[1] = {floor_of(bytes.combine, *speeds), bound_of(bytes.combine, *speeds), {}};
    all[2] = {*all[0].floor + *all[1].floor, *all[0].bound + *all[1].bound, {}};
  }
  GpuMeasurement measured;
  measured.dispatch.seconds = {us[0] * 1e-6};
  measured.pair.seconds = {us[1] * 1e-6};
  measured.dispatch_kernels = kernels.dispatch;
  measured.pair_kernels = kernels.pair;
  measured.multiprocessors = multiprocessors_of(0);
  using enum BenchOperation;
  for (std::size_t i = 0; i < all.size(); ++i) all[i].sm = measured.sm_seconds(std::array{dispatch, combine, pair}[i]);
  std::string text = text_of(all);
  if (all[2].sm)
    text += fmt::format(", \"dispatch_blocks\": [{}], \"pair_blocks\": [{}]", text_of(kernels.dispatch),
                        text_of(kernels.pair));
  if (speeds)
    text += fmt::format(", \"wire_gb_per_s\": {:.1f}, \"wire_latency_us\": {:.2f}, \"copy_gb_per_s\": {:.1f}",
                        speeds->wire_bytes_per_second * 1e-9, speeds->wire_latency * 1e6,
                        speeds->copy_bytes_per_second * 1e-9);
  return text;
}

}  // namespace ferry::app
