#include "tool/layer/experts/source_experts.h"

#include <algorithm>

namespace ferry::app {

SourceExperts::SourceExperts(RankBuffers& buffers, const RowLayout& layout, const LayerOptions& options)
    : buffers_(buffers),
      options_(options),
      hidden_(static_cast<std::size_t>(layout.hidden)),
      top_k_(static_cast<std::size_t>(layout.top_k)),
      results_(static_cast<std::size_t>(buffers.row_capacity()) * top_k_ * hidden_ * sizeof(Bf16)),
      batch_(static_cast<std::size_t>(ExpertRunner::kMostRows) * hidden_ * sizeof(Bf16)) {}

std::int64_t SourceExperts::run(int local, const ExpertWeights& weights, ExpertRunner& runner) {
  const auto* ids = buffers_.dispatch_output().row_topk_ids.as<std::int32_t>();
  const auto end = static_cast<std::size_t>(buffers_.num_rows()) * top_k_;
  std::int64_t count = 0;
  for (std::size_t entry = 0; entry < end; ++entry) {
    if (ids[entry] != local) continue;
    buffers_.decode_row(options_.format, options_.input_scale, 0, static_cast<std::int64_t>(entry / top_k_),
                        static_cast<std::int64_t>(entries_.size()));
    entries_.push_back(entry);
    ++count;
    if (static_cast<std::int64_t>(entries_.size()) == ExpertRunner::kMostRows) finish(weights, runner);
  }
  finish(weights, runner);
  return count;
}

void SourceExperts::finish(const ExpertWeights& weights, ExpertRunner& runner) {
  if (!entries_.empty())
    runner.run(weights, buffers_.decoded(), static_cast<std::int64_t>(entries_.size()), batch_.as<Bf16>());
  for (std::size_t i = 0; i < entries_.size(); ++i)
    std::copy_n(batch_.as<Bf16>() + i * hidden_, hidden_, result(entries_[i]));
  entries_.clear();
}

void SourceExperts::add_up() {
  const DispatchOutput& rows = buffers_.dispatch_output();
  const auto* ids = rows.row_topk_ids.as<std::int32_t>();
  const auto* weights = rows.row_topk_weights.as<float>();
  for (std::size_t row = 0; row < static_cast<std::size_t>(buffers_.num_rows()); ++row) {
    for (std::size_t column = 0; column < hidden_; ++column) {
      float sum = 0;
      for (std::size_t entry = row * top_k_; entry < (row + 1) * top_k_; ++entry)
        if (ids[entry] >= 0) sum = sum + weights[entry] * from_bf16(result(entry)[column]);
      buffers_.expert_rows()[row * hidden_ + column] = to_bf16(sum);
    }
  }
}

}  // namespace ferry::app
