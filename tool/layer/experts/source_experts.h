// SourceExperts: the experts of a rank on rows that are by_source. A row is a token, which one expert after another
// takes; and its result is the weighted sum over them, in the order of k, as combine adds up rows by_expert. So the
// layer's output is the same bytes.
#pragma once

#include "tool/layer/experts/experts.h"
#include "tool/layer/rows/rank_buffers.h"

namespace ferry::app {

class SourceExperts {
 public:
  SourceExperts(RankBuffers& buffers, const RowLayout& layout, const LayerOptions& options);

  // Computes the results of a local expert for all rows that name it. Returns how many there are.
  std::int64_t run(int local, const ExpertWeights& weights, ExpertRunner& runner);
  // When all have run: the rows for combine.
  void add_up();

 private:
  // The results of an entry of row_topk_ids.
  Bf16* result(std::size_t entry) const { return results_.as<Bf16>() + entry * hidden_; }
  void finish(const ExpertWeights& weights, ExpertRunner& runner);

  RankBuffers& buffers_;
  const LayerOptions& options_;
  const std::size_t hidden_, top_k_;
  Pages results_;                     // [row_capacity, K, hidden]
  Pages batch_;                       // [ExpertRunner::kMostRows, hidden]
  std::vector<std::size_t> entries_;  // of the batch
};

}  // namespace ferry::app
