// A layer's run: what it takes, its ranks, and what they counted and measured together.
#include "tool/layer/layer.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <span>
#include <thread>

#include "tool/layer/experts/experts.h"
#include "tool/layer/rank/given_tokens.h"
#include "tool/layer/rank/rank_run.h"

namespace ferry::app {
namespace {

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
void merge_processes(LayerRun& run) {
  LayerReport& report = run.report;
  const std::uint64_t counts[] = {report.messages, report.wire_bytes, report.rows, report.non_finite_blocks};
  const std::vector<std::uint64_t> counted =
      from_all(run.ranks.world(), std::span<const std::uint64_t>(counts), run.options.deadline);
  report.messages = report.wire_bytes = report.rows = report.non_finite_blocks = 0;
  for (std::size_t i = 0; i < counted.size(); i += std::size(counts)) {
    report.messages += counted[i];
    report.wire_bytes += counted[i + 1];
    report.rows += counted[i + 2];
    report.non_finite_blocks += counted[i + 3];
  }
  const std::vector<std::uint64_t> between =
      from_all(run.ranks.world(), std::span<const std::uint64_t>(report.messages_between), run.options.deadline);
  for (std::size_t i = 0; i < between.size(); ++i) {  // of one process each
    std::uint64_t& messages = report.messages_between[i % report.messages_between.size()];
    messages = std::max(messages, between[i]);
  }
  const std::span<double> slowest = run.timing.all();
  const std::vector<double> timed = from_all(run.ranks.world(), std::span<const double>(slowest), run.options.deadline);
  for (std::size_t i = 0; i < timed.size(); ++i) {
    double& seconds = slowest[i % slowest.size()];
    seconds = std::max(seconds, timed[i]);
  }
}

}  // namespace

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
  LayerRun run{ranks,
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
  run.report.messages_between.resize(static_cast<std::size_t>(options.ranks) * static_cast<std::size_t>(options.ranks));
  set_product_threads(product_threads(num_ranks_of_this_host(ranks)));
  ranks.run([&](World& world) {
    try {
      run_rank(run, world);
    } catch (...) {
      run.barrier.fail();
      throw;
    }
  });
  if (ranks.is_part()) merge_processes(run);
  run.report.rounds = plan.rounds;
  run.report.dispatch_seconds = run.timing.total(Timing::kDispatch);
  run.report.expert_seconds = run.timing.total(Timing::kExperts);
  run.report.combine_seconds = run.timing.total(Timing::kCombine);
  run.report.message_bytes = message_bytes(options.format, layer.hidden);
  run.report.dispatch_bytes = run.report.messages * run.report.message_bytes;
  return run.report;
}

}  // namespace ferry::app
