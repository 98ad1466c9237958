// gpu_stress [ROUNDS [RANKS [SEED [damage]]]]: exchanges on the GPUs of this machine, every row and every sum compared.
//
// At most 256 tokens a rank, and 640 in every third segment; each round has other numbers of tokens, data, routing and
// delays. Hidden, experts, top-k, format and reduction change from segment to segment. `damage` changes one byte, which
// must be found. Exit code: 0 all right, 1 a mismatch or an error, 77 nothing run.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>

#include "ferry/cuda/cuda_world.h"
#include "gpu/stress/stress_rank.h"

namespace {

using namespace ferry;
using namespace ferry::stress;

constexpr int kSkipped = 77;
constexpr int kMaxTokens = 256;
constexpr int kMoreTokens = 640;  // so many are sent and summed in other ways
constexpr unsigned kRoundsOfSegment = 500;
constexpr Config kConfigs[] = {
    {7168, 256, 8, Format::fp8_block128, false, false, 0}, {2880, 128, 4, Format::fp8_block128, false, false, 0},
    {256, 64, 8, Format::fp8_block128, false, true, 128},  {4096, 128, 8, Format::bf16, false, false, 16},
    {1024, 512, 22, Format::mxfp8, false, false, 0},       {4096, 8, 2, Format::bf16, true, false, 0},
    {2048, 64, 6, Format::mxfp8, true, false, 8},          {512, 37, 5, Format::bf16, true, true, 0},
    {3072, 256, 8, Format::fp8_block128, true, false, 0},  {32, 16, 3, Format::bf16, false, false, 0},
};

struct Totals {
  std::mutex guard;
  unsigned long long rows = 0, sums = 0, mismatches = 0;

  void add(int rank, const Segment& segment, const Verdict& verdict) {
    const std::lock_guard lock(guard);
    rows += verdict.rows_checked;
    sums += verdict.sums_checked;
    if (verdict.mismatches != 0)
      std::fprintf(
          stderr,
          "gpu_stress: rank %d, round %u (hidden %d, top-%d of %d): %llu mismatches, the first in %s: place %d, "
          "column %d: expected 0x%x, got 0x%x\n",
          rank, verdict.round, segment.config.hidden, segment.config.top_k, segment.config.experts, verdict.mismatches,
          to_string(verdict.wrong), verdict.place, verdict.column, verdict.expected, verdict.got);
    mismatches += verdict.mismatches;
  }
};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

int run(unsigned rounds, int ranks, unsigned seed, bool damaged) {
  const auto start = std::chrono::steady_clock::now();
  auto shown = start;
  Totals totals;
  run_cuda_ranks(ranks, false, [&](World& world) {
    for (unsigned done = 0, index = 0; done < rounds; ++index) {
      const unsigned some = std::min(kRoundsOfSegment, rounds - done);
      const int max_tokens = index % 3 == 2 ? kMoreTokens : kMaxTokens;
      const Segment segment{kConfigs[index % std::size(kConfigs)], max_tokens, done, some, seed, damaged};
      totals.add(world.rank(), segment, run_segment(world, segment));
      done += some;
      if (world.rank() != 0 || seconds_since(shown) < 5) continue;
      shown = std::chrono::steady_clock::now();
      std::printf("gpu_stress: %u of %u rounds, %.0f s\n", done, rounds, seconds_since(start));
      std::fflush(stdout);
    }
  });
  std::printf("gpu_stress: %u rounds on %d GPUs, seed %u: %llu rows and %llu sums compared, %llu mismatches, %.0f s\n",
              rounds, ranks, seed, totals.rows, totals.sums, totals.mismatches, seconds_since(start));
  if (totals.rows == 0 || totals.sums == 0) {
    std::fprintf(stderr, "gpu_stress: nothing was compared\n");
    return 1;
  }
  return totals.mismatches == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);  // no kernel is loaded while another one waits for a peer
  const int gpus = std::min(ferry::num_cuda_devices(), kMostRanks);
  if (gpus == 0) {
    std::printf("gpu_stress: skipped: no GPU was found\n");
    return kSkipped;
  }
  const auto number = [&](int index, int otherwise) { return argc > index ? std::atoi(argv[index]) : otherwise; };
  const int rounds = number(1, 1000), ranks = number(2, std::min(gpus, 8)), seed = number(3, 1);
  if (rounds < 1 || ranks < 1 || ranks > gpus) {
    std::fprintf(stderr, "usage: %s [ROUNDS [RANKS [SEED [damage]]]]; RANKS is 1 to %d here\n", argv[0], gpus);
    return 2;
  }
  try {
    return run(static_cast<unsigned>(rounds), ranks, static_cast<unsigned>(seed),
               argc > 4 && std::string(argv[4]) == "damage");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpu_stress: %s\n", error.what());
    return 1;
  }
}
