// A rank is a thread that dispatches its tokens, runs its experts and combines, round after round.
#include "tool/layer/rank/rank_run.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <mutex>

#include "tool/layer/rank/given_tokens.h"
#include "tool/layer/rows/rank_buffers.h"
#include "tool/ranks/gpus.h"
#include "tool/ranks/rank_calls.h"

namespace ferry::app {
namespace {

class RankRun {
 public:
  RankRun(LayerRun& run, World& world)
      : run_(run),
        world_(world),
        rank_(world.rank()),
        mine_(tokens_of_rank(run.layer.tokens, run.options.ranks, rank_)),
        exchange_(world, run.plan.shape, run.plan.exchange),
        tokens_(exchange_.layout(), run.plan.shape, run.options),
        buffers_(exchange_.layout(), run.plan.shape, run.options.rows),
        calls_(make_calls(run, world, exchange_.layout())),
        experts_(run.experts_of(world)) {
    experts_ = run.options.experts->make({run.layer, run.options, run.plan, exchange_.layout(), rank_,
                                          run.ranks.device_of(world), buffers_, *calls_, run.progress});
  }

  void run() {
    for (std::int64_t round = 0; round < run_.plan.rounds; ++round)
      if (!run_round(round)) return;
    if (!all_well()) return;  // freeing memory of a GPU waits for its kernels, and they may be those of others
    const Stats stats = exchange_.stats();
    const std::lock_guard lock(run_.guard);
    const auto passes = static_cast<std::uint64_t>(1 + run_.options.repeats);  // each carries the same
    for (int peer = 0; peer < run_.options.ranks; ++peer) {
      const std::uint64_t messages = stats.messages_sent[static_cast<std::size_t>(peer)] / passes;
      run_.report.messages_between[static_cast<std::size_t>(rank_ * run_.options.ranks + peer)] = messages;
      if (peer == rank_) continue;
      run_.report.messages += messages;
      run_.report.wire_bytes += stats.bytes_sent[static_cast<std::size_t>(peer)] / passes;
    }
    run_.report.non_finite_blocks += stats.non_finite_blocks / passes + tokens_.non_finite_blocks();
    run_.report.rows += rows_done_;
    calls_->finish(exchange_);
  }

 private:
  static std::unique_ptr<RankCalls> make_calls(const LayerRun& run, const World& world, const RowLayout& layout) {
    if (!run.ranks.on_gpus()) return std::make_unique<HostCalls>();
    return gpus().make_calls(run.ranks.device_of(world), run.plan.shape, layout, run.options.rows);
  }

  // All ranks are here. False: one of this process failed.
  bool all_well() {
    if (!run_.barrier.all_well()) return false;
    if (run_.ranks.is_part()) world_.barrier({}, run_.options.deadline);
    return true;
  }

  bool run_round(std::int64_t round) {
    const std::int64_t most = run_.plan.shape.max_tokens;
    const std::int64_t done = std::min(round * most, mine_.count);
    const TokenSpan tokens{mine_.begin + done, std::min(most, mine_.count - done)};
    tokens_.take(run_.layer.x + tokens.begin * run_.layer.hidden, tokens.count);
    for (int number = 0; number <= run_.options.repeats; ++number)
      if (!run_pass({round, number}, tokens)) return false;
    if (!run_.observer) return true;
    calls_->take_rows();
    run_.observer(rank_, buffers_.rows());
    return true;
  }

  // Every pass of a round dispatches the same tokens, so the experts' results of the first are those of all.
  bool run_pass(const Timing::Pass& pass, const TokenSpan& tokens) {
    calls_->give(dispatch_input(tokens), buffers_.dispatch_output());
    if (!all_well()) return false;
    Timing::Clock::time_point start = Timing::Clock::now();
    calls_->dispatch(exchange_);
    run_.timing.add(pass, Timing::kDispatch, start);
    experts_->take();
    if (pass.number == 0 && !run_experts(pass)) return false;
    give_results(tokens);
    if (!all_well()) return false;
    start = Timing::Clock::now();
    calls_->combine(exchange_);
    run_.timing.add(pass, Timing::kCombine, start);
    calls_->take_sums();
    return true;
  }

  // CUDA may load a kernel of the experts here, and waits then for those that run: none of an exchange may, since it
  // would wait for a rank that has not launched its own (I21).
  bool run_experts(const Timing::Pass& pass) {
    if (!all_well()) return false;
    const Timing::Clock::time_point start = Timing::Clock::now();
    rows_done_ += static_cast<std::uint64_t>(experts_->run());
    run_.timing.add(pass, Timing::kExperts, start);
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
    in.topk_ids = lines(run_.layer.ids.data, run_.layer.ids.dtype, tokens, run_.layer.top_k);
    if (run_.options.reduction == Reduction::by_rank)
      in.topk_weights = lines(run_.layer.weights, DType::f32, tokens, run_.layer.top_k);
    in.input_scale = &run_.options.input_scale;
    in.row_order = run_.options.rows;
    return in;
  }

  void give_results(const TokenSpan& tokens) {
    CombineInput in;
    in.rows = experts_->results();
    in.src_info = calls_->arrived().src_info;
    if (run_.options.chooses) in.reduction = run_.options.reduction;
    if (run_.options.reduction == Reduction::exact)
      in.topk_weights = lines(run_.layer.weights, DType::f32, tokens, run_.layer.top_k);
    CombineOutput out;
    out.tokens = Tensor(run_.output + tokens.begin * run_.layer.hidden, DType::f32, {tokens.count, run_.layer.hidden});
    calls_->give(in, out);
  }

  LayerRun& run_;
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

}  // namespace

void run_rank(LayerRun& run, World& world) { RankRun(run, world).run(); }

}  // namespace ferry::app
