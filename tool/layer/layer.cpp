// The ranks of a layer that this process plays: each is a thread that dispatches its tokens, runs its experts and
// combines, round after round.
#include "tool/layer/layer.h"

#include <fmt/core.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <mutex>
#include <span>
#include <thread>

#include "ferry/detail/base/order.h"
#include "tool/layer/given_tokens.h"
#include "tool/layer/rank_buffers.h"
#include "tool/ranks/gpus.h"
#include "tool/ranks/shape_names.h"

namespace ferry::app {
namespace {

using Clock = std::chrono::steady_clock;

// Where the ranks of this process meet between the phases of a round. A rank that fails leaves, and the others learn of
// it here and not by a deadline.
class FailureBarrier {
 public:
  explicit FailureBarrier(int ranks) : barrier_(ranks) {}
  bool all_well() {
    barrier_.arrive_and_wait();
    return load_acquire(failed_) == 0;
  }
  void fail() {
    store_release(failed_, 1);
    barrier_.arrive_and_drop();
  }

 private:
  std::barrier<> barrier_;
  DeviceWord<int> failed_;
};

// The seconds of each phase on its slowest rank, for each pass of each round.
class Timing {
 public:
  Timing(std::int64_t rounds, int repeats)
      : passes_(1 + repeats), seconds_(static_cast<std::size_t>(rounds * passes_) * kPhases) {}
  enum Phase { kDispatch, kExperts, kCombine, kPhases };
  struct Pass {
    std::int64_t round;
    int number;  // 0: with the experts
  };
  void add(const Pass& pass, Phase phase, Clock::time_point start) {
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    const std::lock_guard lock(guard_);
    double& slowest = seconds_[static_cast<std::size_t>(pass.round * passes_ + pass.number) * kPhases + phase];
    slowest = std::max(slowest, seconds);
  }
  std::span<double> all() { return seconds_; }
  // Over the rounds. Where passes were repeated, a round counts with the median of the repeats.
  double total(Phase phase) const {
    double sum = 0;
    const bool repeated = passes_ > 1 && phase != kExperts;
    constexpr std::size_t of_pass = kPhases;
    const std::size_t of_round = static_cast<std::size_t>(passes_) * of_pass;
    for (std::size_t begin = 0; begin < seconds_.size(); begin += of_round) {
      std::vector<double> counted;
      const std::size_t end = begin + (repeated ? of_round : of_pass);
      for (std::size_t i = begin + phase + (repeated ? of_pass : 0); i < end; i += of_pass)
        counted.push_back(seconds_[i]);
      const auto middle = counted.begin() + static_cast<std::ptrdiff_t>(counted.size() / 2);
      std::nth_element(counted.begin(), middle, counted.end());
      sum += *middle;
    }
    return sum;
  }

 private:
  const int passes_;
  std::mutex guard_;
  std::vector<double> seconds_;
};

// Everything that the ranks of one run share.
struct Team {
  const Ranks& ranks;
  const Layer& layer;
  const LayerOptions& options;
  const LayerPlan& plan;
  float* output;
  const std::function<void(std::int64_t)>& progress;
  const RowsObserver& observer;
  FailureBarrier barrier;
  Timing timing;
  std::mutex guard;
  LayerReport report;
  // Of the ranks of this process. They outlive the threads of the ranks: freeing what is on a GPU waits for its
  // kernels, and those of another rank may wait for this one.
  std::vector<std::unique_ptr<Experts>> experts;

  std::unique_ptr<Experts>& experts_of(const World& world) {
    return experts[static_cast<std::size_t>(world.rank() - ranks.world().rank())];
  }
};

class RankRun {
 public:
  RankRun(Team& team, World& world)
      : team_(team),
        world_(world),
        rank_(world.rank()),
        mine_(tokens_of_rank(team.layer.tokens, team.options.ranks, rank_)),
        exchange_(world, team.plan.shape, team.plan.exchange),
        tokens_(exchange_.layout(), team.plan.shape, team.options),
        buffers_(exchange_.layout(), team.plan.shape, team.options.rows),
        calls_(make_calls(team, world, exchange_.layout())),
        experts_(team.experts_of(world)) {
    experts_ = team.options.experts->make({team.layer, team.options, team.plan, exchange_.layout(), rank_,
                                           team.ranks.device_of(world), buffers_, *calls_, team.progress});
  }

  void run() {
    for (std::int64_t round = 0; round < team_.plan.rounds; ++round)
      if (!run_round(round)) return;
    if (!all_well()) return;  // freeing memory of a GPU waits for its kernels, and they may be those of others
    const Stats stats = exchange_.stats();
    const std::lock_guard lock(team_.guard);
    const auto passes = static_cast<std::uint64_t>(1 + team_.options.repeats);  // each carries the same
    for (int peer = 0; peer < team_.options.ranks; ++peer) {
      const std::uint64_t messages = stats.messages_sent[static_cast<std::size_t>(peer)] / passes;
      team_.report.messages_between[static_cast<std::size_t>(rank_ * team_.options.ranks + peer)] = messages;
      if (peer == rank_) continue;
      team_.report.messages += messages;
      team_.report.wire_bytes += stats.bytes_sent[static_cast<std::size_t>(peer)] / passes;
    }
    team_.report.non_finite_blocks += stats.non_finite_blocks / passes + tokens_.non_finite_blocks();
    team_.report.rows += rows_done_;
    calls_->finish(exchange_);
  }

 private:
  static std::unique_ptr<RankCalls> make_calls(const Team& team, const World& world, const RowLayout& layout) {
    if (!team.ranks.on_gpus()) return std::make_unique<HostCalls>();
    return gpus().make_calls(team.ranks.device_of(world), team.plan.shape, layout, team.options.rows);
  }

  // All ranks are here. False: one of this process failed.
  bool all_well() {
    if (!team_.barrier.all_well()) return false;
    if (team_.ranks.is_part()) world_.barrier({}, team_.options.deadline);
    return true;
  }

  bool run_round(std::int64_t round) {
    const std::int64_t most = team_.plan.shape.max_tokens;
    const std::int64_t done = std::min(round * most, mine_.count);
    const TokenSpan tokens{mine_.begin + done, std::min(most, mine_.count - done)};
    tokens_.take(team_.layer.x + tokens.begin * team_.layer.hidden, tokens.count);
    for (int number = 0; number <= team_.options.repeats; ++number)
      if (!run_pass({round, number}, tokens)) return false;
    if (!team_.observer) return true;
    calls_->take_rows();
    team_.observer(rank_, buffers_.rows());
    return true;
  }

  // Every pass of a round dispatches the same tokens, so the experts' results of the first are those of all.
  bool run_pass(const Timing::Pass& pass, const TokenSpan& tokens) {
    calls_->give(dispatch_input(tokens), buffers_.dispatch_output());
    if (!all_well()) return false;
    Clock::time_point start = Clock::now();
    calls_->dispatch(exchange_);
    team_.timing.add(pass, Timing::kDispatch, start);
    experts_->take();
    if (pass.number == 0 && !run_experts(pass)) return false;
    give_results(tokens);
    if (!all_well()) return false;
    start = Clock::now();
    calls_->combine(exchange_);
    team_.timing.add(pass, Timing::kCombine, start);
    calls_->take_sums();
    return true;
  }

  // CUDA may load a kernel of the experts here, and waits then for those that run: none of an exchange may, since it
  // would wait for a rank that has not launched its own (I21).
  bool run_experts(const Timing::Pass& pass) {
    if (!all_well()) return false;
    const Clock::time_point start = Clock::now();
    rows_done_ += static_cast<std::uint64_t>(experts_->run());
    team_.timing.add(pass, Timing::kExperts, start);
    return true;
  }

  // A view of `count` lines of one of the layer's [tokens, columns] arrays.
  static ConstTensor lines(const void* data, DType dtype, const TokenSpan& tokens, int columns) {
    const auto skipped = static_cast<std::size_t>(tokens.begin) * static_cast<std::size_t>(columns) * size_of(dtype);
    return {static_cast<const std::byte*>(data) + skipped, dtype, {tokens.count, columns}};
  }

  DispatchInput dispatch_input(const TokenSpan& tokens) const {
    DispatchInput in;
    tokens_.give(in);
    in.topk_ids = lines(team_.layer.ids.data, team_.layer.ids.dtype, tokens, team_.layer.top_k);
    if (team_.options.reduction == Reduction::by_rank)
      in.topk_weights = lines(team_.layer.weights, DType::f32, tokens, team_.layer.top_k);
    in.input_scale = &team_.options.input_scale;
    in.row_order = team_.options.rows;
    return in;
  }

  void give_results(const TokenSpan& tokens) {
    CombineInput in;
    in.rows = experts_->results();
    in.src_info = calls_->arrived().src_info;
    if (team_.options.reduction == Reduction::exact)
      in.topk_weights = lines(team_.layer.weights, DType::f32, tokens, team_.layer.top_k);
    CombineOutput out;
    out.tokens =
        Tensor(team_.output + tokens.begin * team_.layer.hidden, DType::f32, {tokens.count, team_.layer.hidden});
    calls_->give(in, out);
  }

  Team& team_;
  World& world_;
  const int rank_;
  const TokenSpan mine_;
  Exchange exchange_;
  GivenTokens tokens_;
  RankBuffers buffers_;
  std::unique_ptr<RankCalls> calls_;
  std::unique_ptr<Experts>& experts_;
  std::uint64_t rows_done_ = 0;
};

// Ranks that share the cores run one-threaded products; a rank alone may use all of them.
int product_threads(int ranks) {
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  return std::max(1, cores / ranks);
}

// Every process's values, one process after the other.
template <class T>
std::vector<T> from_all(World& world, std::span<const T> mine, std::chrono::milliseconds deadline) {
  std::vector<T> all(mine.size() * static_cast<std::size_t>(world.size()));
  world.all_gather(std::as_bytes(mine), std::as_writable_bytes(std::span(all)), {}, deadline);
  return all;
}

// Adds up what the processes counted, and takes the slowest time of each phase.
void merge_processes(Team& team) {
  LayerReport& report = team.report;
  const std::uint64_t counts[] = {report.messages, report.wire_bytes, report.rows, report.non_finite_blocks};
  const std::vector<std::uint64_t> counted =
      from_all(team.ranks.world(), std::span<const std::uint64_t>(counts), team.options.deadline);
  report.messages = report.wire_bytes = report.rows = report.non_finite_blocks = 0;
  for (std::size_t i = 0; i < counted.size(); i += std::size(counts)) {
    report.messages += counted[i];
    report.wire_bytes += counted[i + 1];
    report.rows += counted[i + 2];
    report.non_finite_blocks += counted[i + 3];
  }
  const std::vector<std::uint64_t> between =
      from_all(team.ranks.world(), std::span<const std::uint64_t>(report.messages_between), team.options.deadline);
  for (std::size_t i = 0; i < between.size(); ++i) {  // of one process each
    std::uint64_t& messages = report.messages_between[i % report.messages_between.size()];
    messages = std::max(messages, between[i]);
  }
  const std::span<double> slowest = team.timing.all();
  const std::vector<double> timed =
      from_all(team.ranks.world(), std::span<const double>(slowest), team.options.deadline);
  for (std::size_t i = 0; i < timed.size(); ++i) {
    double& seconds = slowest[i % slowest.size()];
    seconds = std::max(seconds, timed[i]);
  }
}

}  // namespace

std::int64_t Layer::id(std::int64_t token, int k) const {
  const std::int64_t index = token * top_k + k;
  return ids.dtype == DType::i32 ? static_cast<const std::int32_t*>(ids.data)[index]
                                 : static_cast<const std::int64_t*>(ids.data)[index];
}

ExpertWeights Layer::expert(int index) const {
  const std::int64_t half = static_cast<std::int64_t>(inter) * hidden;
  return {gate_up + 2 * half * index, down + half * index, inter};
}

TokenSpan tokens_of_rank(std::int64_t tokens, int ranks, int rank) {
  const std::int64_t more = tokens % ranks;
  return {rank * (tokens / ranks) + std::min<std::int64_t>(rank, more), tokens / ranks + (rank < more ? 1 : 0)};
}

LayerPlan plan_layer(const Layer& layer, const LayerOptions& options) {
  const std::int64_t most = std::max<std::int64_t>(1, tokens_of_rank(layer.tokens, options.ranks, 0).count);
  LayerPlan plan;
  plan.rounds = options.one_round ? 1 : (most + kMostTokensPerRound - 1) / kMostTokensPerRound;
  const std::int64_t per_round = (most + plan.rounds - 1) / plan.rounds;  // rounds of like size
  if (per_round > std::int64_t{1} << 30)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("{} tokens for a rank in one round: must be at most {}", per_round, 1 << 30));
  plan.shape = {options.ranks, layer.experts, layer.top_k, static_cast<int>(per_round), layer.hidden};
  require_shape(plan.shape,
                {.top_k = "K of --topk-ids,",
                 .tokens = options.one_round ? "tokens of a rank in one round (--dump)," : "tokens of a rank,",
                 .hidden = "columns of --tokens,",
                 .experts_are = "of --gate-up"});
  plan.exchange.format = options.format;
  plan.exchange.reduction = options.reduction;
  plan.exchange.result_format = options.results;
  plan.exchange.row_orders = {options.rows};
  plan.exchange.fused_shared_expert = layer.shared_inter != 0;
  plan.exchange.deadline = plan.exchange.set_up_deadline = options.deadline;
  require_rows_fit(plan.exchange);
  memory_use(plan.shape, plan.exchange);  // throws where these do not fit together
  return plan;
}

std::vector<MemoryNeed> layer_memory(const Layer& layer, const LayerPlan& plan, const LayerOptions& options,
                                     bool on_gpus) {
  const auto ranks = static_cast<std::uint64_t>(plan.shape.ranks);
  const std::uint64_t tokens = ranks * static_cast<std::uint64_t>(plan.shape.max_tokens);
  // Every (token, k) is one row on one rank, however the tokens are routed; padding adds to each group.
  const RowLayout rows = row_layout(plan.shape, plan.exchange, 0);
  const std::uint64_t padding =
      ranks * static_cast<std::uint64_t>(rows.groups) * static_cast<std::uint64_t>(rows.alignment - 1);
  const std::uint64_t most_rows =
      tokens * static_cast<std::uint64_t>(layer.top_k + (layer.shared_inter != 0 ? 1 : 0)) + padding;
  const ExpertMemory experts = options.experts->memory(layer, options);
  return {{"buffers of the exchange", on_gpus ? 0 : ranks * memory_use(plan.shape, plan.exchange).total},
          {"rows of the experts", most_rows * experts.row},
          {"tokens of a round", GivenTokens::bytes(rows, options.encoded, tokens)},
          {"scratch of the experts", ranks * experts.scratch}};
}

LayerReport run_layer(const Ranks& ranks, const Layer& layer, const LayerOptions& options, float* output,
                      const std::function<void(std::int64_t)>& progress, const RowsObserver& observer) {
  const LayerPlan plan = plan_layer(layer, options);
  Team team{ranks,
            layer,
            options,
            plan,
            output,
            progress,
            observer,
            FailureBarrier(ranks.here()),
            Timing(plan.rounds, options.repeats),
            {},
            {},
            std::vector<std::unique_ptr<Experts>>(static_cast<std::size_t>(ranks.here()))};
  team.report.messages_between.resize(static_cast<std::size_t>(options.ranks) *
                                      static_cast<std::size_t>(options.ranks));
  set_product_threads(product_threads(num_ranks_of_this_host(ranks)));
  ranks.run([&](World& world) {
    try {
      RankRun(team, world).run();
    } catch (...) {
      team.barrier.fail();
      throw;
    }
  });
  if (ranks.is_part()) merge_processes(team);
  team.report.rounds = plan.rounds;
  team.report.dispatch_seconds = team.timing.total(Timing::kDispatch);
  team.report.expert_seconds = team.timing.total(Timing::kExperts);
  team.report.combine_seconds = team.timing.total(Timing::kCombine);
  team.report.message_bytes = message_bytes(options.format, layer.hidden);
  team.report.dispatch_bytes = team.report.messages * team.report.message_bytes;
  return team.report;
}

}  // namespace ferry::app
