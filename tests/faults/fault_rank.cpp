// One rank of the fault tests, a process under oshrun: a round that works, then one in which a chosen rank is killed or
// stopped in the middle of what it sends. What each rank saw goes to a file of its own.
//
//   fault_rank FOLDER KIND WHERE RANK DEADLINE_MS NODES
//   KIND   none, kill, or stop; WHERE start, dispatch, combine, or part: in dispatch, when rank 3 has all that it is
//          sent, so that it gets to where all ranks meet; RANK the one that it befalls. Or rounds: one round after the
//          other until something is wrong; or barriers: the same, with all ranks meeting before each call
//
// FOLDER gets ready.<rank> when a rank's first round is done, and seen.<rank>, a JSON object, when it ends with an
// error. Exit code 0 when all rounds worked, 1 after an error.
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "ferry/ferry.h"
#include "ferry/worlds/shmem_world.h"

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kHidden = 1024;  // a float32 row is a page
constexpr int kTokens = 48;
constexpr int kTopK = 4;

struct Options {
  std::string folder, kind, where;
  int rank = 0;
  milliseconds deadline{0};
  int nodes = 1;
};

// Memory in which one page stops or kills this process when it is read.
class TrapPages {
 public:
  explicit TrapPages(std::size_t bytes)
      : bytes_(bytes), memory_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    if (memory_ == MAP_FAILED) std::abort();
  }
  float* data() const { return static_cast<float*>(memory_); }
  void arm(int row, bool stops) {
    trapped = data() + static_cast<std::ptrdiff_t>(row) * kHidden;
    stops_only = stops;
    struct sigaction action = {};
    action.sa_handler = [](int) { spring(); };
    sigaction(SIGSEGV, &action, nullptr);
    mprotect(trapped, kHidden * sizeof(float), PROT_NONE);
  }

 private:
  static void spring() {
    if (!stops_only) kill(getpid(), SIGKILL);
    mprotect(trapped, kHidden * sizeof(float), PROT_READ | PROT_WRITE);
    kill(getpid(), SIGSTOP);  // and on from the same instruction, once it is continued
  }
  static inline float* trapped = nullptr;
  static inline bool stops_only = false;

  std::size_t bytes_;
  void* memory_;
};

bool is_befallen(const Options& options) { return options.kind == "kill" || options.kind == "stop"; }

void write_file(const Options& options, const char* name, int rank, const std::string& text) {
  const std::string path = fmt::format("{}/{}.{}", options.folder, name, rank);
  std::ofstream(path + ".part") << text;
  std::rename((path + ".part").c_str(), path.c_str());
}

class Rank {
 public:
  Rank(const Options& options, ferry::ProcessWorld& world)
      : options_(options),
        shape_{world.size(), 2 * world.size(), kTopK, kTokens, kHidden},
        world_(world),
        exchange_(world, shape_, {.deadline = options.deadline}),
        capacity_(exchange_.layout().min_row_capacity),
        tokens_(kTokens * kHidden * sizeof(float)),
        results_(static_cast<std::size_t>(capacity_) * kHidden * sizeof(float)),
        sums_(kTokens * kHidden) {
    for (const ferry::TensorSpec& spec : ferry::dispatch_outputs(exchange_.layout(), capacity_))
      arrivals_.*spec.field = {memory_.emplace_back(spec.bytes()).data(), spec.dtype, spec.shape};
    for (int token = 0; token < kTokens; ++token)
      for (int k = 0; k < kTopK; ++k) ids_.push_back((token + world.rank() + 2 * k) % shape_.experts);
    for (int i = 0; i < kTokens * kHidden; ++i) tokens_.data()[i] = static_cast<float>(i % 31 + world.rank());
    weights_.assign(ids_.size(), 1.0f / kTopK);
  }

  // Experts give back what they get, and weights sum to one: a token comes home as it left. `fault`: here, now.
  void run_round(bool fault) {
    const bool stops = options_.kind == "stop";
    if (fault && options_.where == "part") serve_rank_3_first();
    if (fault && (options_.where == "dispatch" || options_.where == "part")) tokens_.arm(kTokens / 2, stops);
    meet();
    began_ = Clock::now();
    exchange_.dispatch({.tokens = {tokens_.data(), ferry::DType::f32, {kTokens, kHidden}},
                        .topk_ids = {ids_.data(), ferry::DType::i32, {kTokens, kTopK}},
                        .topk_weights = {weights_.data(), ferry::DType::f32, {kTokens, kTopK}}},
                       arrivals_);
    const auto rows = static_cast<int>(arrivals_.row_offsets.as<std::uint32_t>()[exchange_.layout().groups]);
    for (int i = 0; i < rows * kHidden; ++i)
      results_.data()[i] = ferry::value_at({arrivals_.payload.data, ferry::DType::bf16}, i);
    if (fault && options_.where == "combine") results_.arm(rows / 2, stops);
    meet();
    began_ = Clock::now();
    exchange_.combine(
        {.rows = {results_.data(), ferry::DType::f32, {capacity_, kHidden}}, .src_info = arrivals_.src_info},
        {.tokens = {sums_.data(), ferry::DType::f32, {kTokens, kHidden}}});
    if (std::memcmp(sums_.data(), tokens_.data(), sums_.size() * sizeof(float)) != 0)
      throw std::runtime_error("a round gave wrong sums");
  }

  double seconds_in_call() const { return std::chrono::duration<double>(Clock::now() - began_).count(); }

  // Whether the exchange that has failed says so again, and of the same rank.
  bool refuses(int missing) {
    try {
      run_round(false);
    } catch (const ferry::PeerMissing& error) {
      return error.record().missing_rank == missing;
    }
    return false;
  }

 private:
  void meet() {
    if (options_.kind != "barriers" && options_.where != "part") return;
    began_ = Clock::now();
    world_.barrier({}, options_.deadline);
  }

  // Each rank has two experts.
  void serve_rank_3_first() {
    for (int token = 0; token < kTokens; ++token)
      for (int k = 0; k < kTopK; ++k)
        ids_[static_cast<std::size_t>(token * kTopK + k)] = token < kTokens / 2 ? shape_.experts - 1 - k : k;
  }

  const Options& options_;
  ferry::Shape shape_;
  ferry::World& world_;
  ferry::Exchange exchange_;
  std::int64_t capacity_;
  TrapPages tokens_, results_;
  std::vector<std::vector<std::byte>> memory_;  // of each output of a dispatch
  ferry::DispatchOutput arrivals_;
  std::vector<std::int32_t> ids_;
  std::vector<float> weights_, sums_;
  Clock::time_point began_;
};

void run(const Options& options, int rank) {
  ferry::ShmemJob job(
      {.heap_bytes = std::size_t{64} << 20,
       .start_deadline = milliseconds(options.where == "start" ? options.deadline : ferry::kDefaultDeadline)});
  {
    const auto world = job.make_world(0, options.nodes);
    Rank mine(options, *world);
    mine.run_round(false);
    write_file(options, "ready", rank, "");
    try {
      const bool endless = options.kind == "rounds" || options.kind == "barriers";
      for (int round = 0; endless || round < 2; ++round)
        mine.run_round(round == 0 && is_befallen(options) && options.rank == rank);
    } catch (const ferry::PeerMissing& error) {
      const double seconds = mine.seconds_in_call();
      write_file(
          options, "seen", rank,
          fmt::format(R"({{"missing": {}, "seconds": {:.3f}, "refuses": {}, "what": "{}"}})",
                      error.record().missing_rank, seconds, mine.refuses(error.record().missing_rank), error.what()));
      std::_Exit(1);
    }
  }
  job.finish();
}

}  // namespace

int main(int argc, char** argv) {
  const char* number = std::getenv("OMPI_COMM_WORLD_RANK");
  if (argc != 7 || number == nullptr) return 2;
  const Options options{argv[1],           argv[2], argv[3], std::atoi(argv[4]), milliseconds(std::atoi(argv[5])),
                        std::atoi(argv[6])};
  const int rank = std::atoi(number);
  if (options.where == "start" && options.rank == rank) kill(getpid(), SIGKILL);
  const Clock::time_point began = Clock::now();
  try {
    run(options, rank);
  } catch (const std::exception& error) {
    const double seconds = std::chrono::duration<double>(Clock::now() - began).count();
    write_file(options, "seen", rank,
               fmt::format(R"({{"missing": -1, "seconds": {:.3f}, "what": "{}"}})", seconds, error.what()));
    std::_Exit(1);
  }
  return 0;
}
