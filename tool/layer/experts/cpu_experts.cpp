// The experts of a rank on the host: rows are decoded there, and matrix products go through a BLAS.
#include <algorithm>
#include <optional>

#include "tool/layer/base/layer_plan.h"
#include "tool/layer/experts/expert_place.h"
#include "tool/layer/experts/source_experts.h"
#include "tool/layer/rows/rank_buffers.h"
#include "tool/ranks/rank_calls.h"

namespace ferry::app {
namespace {

// A product takes rows that were decoded at once.
static_assert(ExpertRunner::kMostRows <= RankBuffers::kMostDecoded);

class CpuExperts final : public Experts {
 public:
  explicit CpuExperts(const ExpertsOfRank& of) : of_(of), runner_(of.layer.hidden, of.layer.largest_inter()) {}

  void take() override { of_.calls.take_rows(); }

  std::int64_t run() override {
    std::int64_t done = 0;
    if (of_.options.rows == RowOrder::by_source) return run_by_source();
    for (int group = 0; group < of_.layout.groups; ++group) done += run_group(group);
    return done;
  }

  ConstTensor results() override {
    const RankBuffers& buffers = of_.buffers;
    const ConstTensor rows(buffers.expert_rows(), DType::bf16, {buffers.row_capacity(), of_.layer.hidden});
    return of_.calls.carry_in(rows, buffers.num_rows());
  }

 private:
  // No shared expert: the exchange refuses it.
  std::int64_t run_by_source() {
    if (!source_experts_) source_experts_.emplace(of_.buffers, of_.layout, of_.options);
    std::int64_t done = 0;
    for (int local = 0; local < of_.layout.groups; ++local) {
      const std::int64_t count = source_experts_->run(local, expert_of_group(of_, local), runner_);
      done += count;
      if (of_.progress) of_.progress(count);
    }
    source_experts_->add_up();
    return done;
  }

  std::int64_t run_group(int group) {
    const TokenSpan rows = of_.buffers.rows_of_group(group);
    for (std::int64_t done = 0; done < rows.count; done += ExpertRunner::kMostRows) {
      const TokenSpan some{rows.begin + done, std::min(ExpertRunner::kMostRows, rows.count - done)};
      of_.buffers.decode(of_.options.format, of_.options.input_scale, group, some);
      runner_.run(expert_of_group(of_, group), of_.buffers.decoded(), some.count,
                  of_.buffers.expert_rows() + some.begin * of_.layer.hidden);
      if (of_.progress) of_.progress(some.count);
    }
    return rows.count;
  }

  const ExpertsOfRank of_;
  ExpertRunner runner_;
  std::optional<SourceExperts> source_experts_;
};

class CpuPlace final : public ExpertPlace {
 public:
  const char* name() const override { return "cpu"; }
  const char* where() const override { return "the host"; }
  void require(const Backend&) const override {}

  ExpertErrors errors() const override {
    constexpr auto kOfSum = [](int n) { return step_roundings(n) * 0x1p-24; };
    constexpr auto kOfActivation = [](double) { return 16 * 0x1p-24; };
    return {.of_sum = kOfSum, .of_activation = kOfActivation, .lost_silu = 0, .rounds_rows = false};
  }

  ExpertMemory memory(const Layer& layer, const LayerOptions& options) const override {
    const std::uint64_t results = options.rows == RowOrder::by_source ? 2 : 1;  // of experts, and of rows
    const std::uint64_t result_bytes = static_cast<std::uint64_t>(layer.hidden) * sizeof(Bf16);
    return {message_bytes(options.format, layer.hidden) + results * result_bytes + 8,
            ExpertRunner::bytes(layer.hidden, layer.largest_inter()) + RankBuffers::decoded_bytes(layer.hidden)};
  }

  std::unique_ptr<Experts> make(const ExpertsOfRank& of) const override { return std::make_unique<CpuExperts>(of); }
};

}  // namespace

const ExpertPlace& cpu_experts() {
  static const CpuPlace place;
  return place;
}

}  // namespace ferry::app
