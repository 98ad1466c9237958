// gpu_stress [ROUNDS [RANKS [SEED [damage]]]]: exchanges on the GPUs of this machine, every row and every sum compared.
//
// 4 ranks, or one for each GPU where there are more; where GPUs are fewer than ranks, several share one. Each round has
// other numbers of tokens, data, routing and delays. Some dispatches leave a handle, some are replays of one, and
// combines of earlier dispatches come between the rounds. Each rank lays its rows out in another order. What an
// exchange is of changes from segment to segment, and every fourth segment replays captured graphs. `damage` changes
// one byte, which must be found. Exit code: 0 all right, 1 a mismatch or an error, 77 nothing run, or by one rank
// alone, which exchanges nothing.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>

#include "ferry/cuda/cuda_world.h"
#include "gpu/few_gpus.h"
#include "gpu/stress/stress_rank.h"

namespace {

using namespace ferry;
using namespace ferry::stress;

constexpr int kSkipped = 77;
constexpr int kFewestRanks = 4;
constexpr int kMostOfAGpu = 8;
constexpr int kMaxTokens = 256;
constexpr int kMoreTokens = 640;                                 // so many are sent and summed in other ways
constexpr unsigned kFewestOfSegment = 50, kMostOfSegment = 500;  // rounds
// Ranks of one GPU: none may fill the driver's queue of launches while another one's are what its kernels wait for.
constexpr unsigned kAtOnceOnASharedGpu = 8;
// Their number has no divisor in common with 3 and 4, after which tokens and graphs come again: all meet all.
constexpr Config kConfigs[] = {
    {.hidden = 7168, .experts = 256, .top_k = 8, .format = Format::fp8_block128},
    {.hidden = 7168, .experts = 256, .top_k = 8, .format = Format::nvfp4, .sources = true, .result = Format::nvfp4},
    {.hidden = 2880,
     .experts = 128,
     .top_k = 4,
     .format = Format::fp8_block128,
     .sources = true,
     .result = Format::fp8_block128},
    {.hidden = 4096,
     .experts = 128,
     .top_k = 8,
     .format = Format::bf16,
     .sources = true,
     .alignment = 16,
     .message_copies = 4},
    {.hidden = 2880, .experts = 64, .top_k = 6, .format = Format::mxfp4, .result = Format::mxfp8},
    {.hidden = 1024, .experts = 512, .top_k = 22, .format = Format::mxfp8},
    {.hidden = 256, .experts = 64, .top_k = 8, .format = Format::fp8_block128, .shared = true, .alignment = 128},
    {.hidden = 2048, .experts = 64, .top_k = 8, .format = Format::fp8_block128_ue8m0, .exact = true},
    {.hidden = 1056,
     .experts = 48,
     .top_k = 5,
     .format = Format::nvfp4,
     .exact = true,
     .shared = true,
     .alignment = 32,
     .input_scale = 37.5f},
    {.hidden = 4096, .experts = 8, .top_k = 2, .format = Format::bf16, .exact = true},
    {.hidden = 2080,
     .experts = 64,
     .top_k = 6,
     .format = Format::mxfp8,
     .alignment = 8,
     .tiled = true,
     .message_copies = 4},
    {.hidden = 3072,
     .experts = 256,
     .top_k = 8,
     .format = Format::fp8_block128,
     .exact = true,
     .result = Format::nvfp4},
    {.hidden = 2048, .experts = 64, .top_k = 6, .format = Format::mxfp8, .exact = true, .alignment = 8},
    {.hidden = 512,
     .experts = 37,
     .top_k = 5,
     .format = Format::bf16,
     .exact = true,
     .shared = true,
     .half = true,
     .wide_ids = true},
    {.hidden = 1536,
     .experts = 64,
     .top_k = 8,
     .format = Format::fp8_block128,
     .sources = true,
     .result = Format::f16,
     .half = true,
     .wide_ids = true},
    // The scales kernel's: so many that it stores all scales of most rounds.
    {.hidden = 7168, .experts = 64, .top_k = 8, .format = Format::fp8_block128, .max_tokens = 1600},
    {.hidden = 32, .experts = 16, .top_k = 3, .format = Format::bf16, .sources = true, .result = Format::f32},
};
static_assert(std::size(kConfigs) % 3 != 0 && std::size(kConfigs) % 2 != 0);

struct Totals {
  std::mutex guard;
  unsigned long long rows = 0, of_others = 0, sums = 0, mismatches = 0;

  void add(int rank, const Segment& segment, const Verdict& verdict) {
    const std::lock_guard lock(guard);
    rows += verdict.rows_checked;
    of_others += verdict.rows_of_others;
    sums += verdict.sums_checked;
    if (verdict.mismatches != 0)
      std::fprintf(stderr,
                   "gpu_stress: rank %d, round %u (%s%s, hidden %d, top-%d of %d): %llu mismatches, the first in %s: "
                   "place %d, column %d: expected 0x%x, got 0x%x\n",
                   rank, verdict.round, name_of(segment.config.format), segment.replayed ? ", a replay" : "",
                   segment.config.hidden, segment.config.top_k, segment.config.experts, verdict.mismatches,
                   to_string(verdict.wrong), verdict.place, verdict.column, verdict.expected, verdict.got);
    mismatches += verdict.mismatches;
  }
};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

struct Job {
  unsigned rounds;
  int ranks;
  unsigned seed;
  bool damaged;
};

Segment segment_of(const Job& job, unsigned index, unsigned done, bool shares_gpus) {
  const unsigned configs = static_cast<unsigned>(std::size(kConfigs));
  const unsigned each = std::clamp(job.rounds / configs, kFewestOfSegment, kMostOfSegment);
  const Config& config = kConfigs[index % configs];
  return {.config = config,
          .max_tokens = config.max_tokens != 0 ? config.max_tokens
                        : index % 3 == 2       ? kMoreTokens
                                               : kMaxTokens,
          .first_round = done,
          .rounds = std::min(each, job.rounds - done),
          .seed = job.seed,
          .damage = job.damaged,
          .replayed = index % 4 == 3,
          .rounds_at_once = shares_gpus ? kAtOnceOnASharedGpu : kMostOfSegment};
}

int verdict_of(const Job& job, const Totals& totals) {
  if (totals.mismatches != 0) return 1;
  if (totals.rows == 0 || totals.sums == 0) {
    std::fprintf(stderr, "gpu_stress: nothing was compared\n");
    return 1;
  }
  if (totals.of_others != 0) return 0;
  std::printf("gpu_stress: skipped: %d rank%s exchanged nothing with another one; ask for 2 or more\n", job.ranks,
              job.ranks == 1 ? "" : "s");
  return kSkipped;
}

int run(const Job& job) {
  const auto start = std::chrono::steady_clock::now();
  auto shown = start;
  Totals totals;
  const int of_each = test::ranks_per_gpu(job.ranks);
  const auto body = [&](World& world) {
    for (unsigned done = 0, index = 0; done < job.rounds; ++index) {
      const Segment segment = segment_of(job, index, done, of_each > 1);
      totals.add(world.rank(), segment, run_segment(world, world.rank() / of_each, segment));
      done += segment.rounds;
      if (world.rank() != 0 || seconds_since(shown) < 5) continue;
      shown = std::chrono::steady_clock::now();
      std::printf("gpu_stress: %u of %u rounds, %.0f s\n", done, job.rounds, seconds_since(start));
      std::fflush(stdout);
    }
  };
  run_cuda_ranks(job.ranks, false, body, of_each);
  std::printf(
      "gpu_stress: %u rounds of %d ranks on %d GPUs, seed %u: %llu rows, %llu of them from another rank, and %llu sums "
      "compared, %llu mismatches, %.0f s\n",
      job.rounds, job.ranks, (job.ranks + of_each - 1) / of_each, job.seed, totals.rows, totals.of_others, totals.sums,
      totals.mismatches, seconds_since(start));
  return verdict_of(job, totals);
}

}  // namespace

int main(int argc, char** argv) {
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);  // no kernel is loaded while another one waits for a peer
  const int gpus = ferry::num_cuda_devices();
  if (gpus == 0) {
    std::printf("gpu_stress: skipped: no GPU was found\n");
    return kSkipped;
  }
  const int most = std::min(kMostOfAGpu * gpus, kMostRanks);
  const auto number = [&](int index, int otherwise) { return argc > index ? std::atoi(argv[index]) : otherwise; };
  const int rounds = number(1, 1000), ranks = number(2, std::clamp(gpus, kFewestRanks, 8)), seed = number(3, 1);
  if (rounds < 1 || ranks < 1 || ranks > most) {
    std::fprintf(stderr, "usage: %s [ROUNDS [RANKS [SEED [damage]]]]; RANKS is 1 to %d here\n", argv[0], most);
    return 2;
  }
  try {
    return run({static_cast<unsigned>(rounds), ranks, static_cast<unsigned>(seed),
                argc > 4 && std::string(argv[4]) == "damage"});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpu_stress: %s\n", error.what());
    return 1;
  }
}
