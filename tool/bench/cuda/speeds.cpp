// The speeds of the machine, as the ranks of `ferry bench` measure them.
#include "tool/bench/cuda/measure.h"
#include "tool/bench/cuda/rank_speeds.h"

namespace ferry::app {
namespace {

constexpr std::size_t kPutBytes = 7392;  // an FP8 message of 7168 columns

}  // namespace

GpuSpeeds measure_speeds(const Ranks& ranks) {
  GpuSpeeds speeds;
  ranks.run([&](World& world) { measure_rank_speeds(world, ranks.device_of(world), ranks.is_part(), speeds); });
  if (ranks.is_part()) {
    PutSpeeds puts = measure_put_speeds(ranks, kPutBytes);
    speeds.wire = std::move(puts.points);
    speeds.puts = std::move(puts.rates);
    speeds.method = "NVSHMEM puts of 7392-byte messages";
  }
  find_rates(speeds);
  return speeds;
}

}  // namespace ferry::app
