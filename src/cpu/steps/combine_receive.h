// Combine on the CPU, the receiving side: waits for the results of each own token and reduces them
// (ferry/detail/protocol/combine_reduce.h); and the end of a combine. GPUs restate the loop in
// ferry/detail/cuda/steps/combine_receive.cuh, so that a team which still sends reduces what has come meanwhile.
#pragma once

#include <cstdint>

#include "cpu/steps/weights/returned_weights.h"
#include "ferry/detail/protocol/await_results.h"
#include "ferry/detail/protocol/combine_reduce.h"
#include "ferry/detail/protocol/step.h"

namespace ferry::cpu {

// I9: the results of an own token, also where they are packed.
template <ReceiveStep S>
void find_own_results(const S& step, int token, bool by_last_k, TokenScratch& scratch) {
  const Plan& plan = step.plan;
  TokenResults& results = scratch.results;
  step.lookup.results(step.group, plan, entries_of(step, {plan.rank, token}), by_last_k, results, scratch.named);
  if (plan.packed == nullptr) return;
  const std::uint32_t* of_result = plan.packed->of_result + token * plan.map.results_per_token();
  for (int i = step.group.thread(); i < results.count; i += step.group.size())
    results.index[i] = plan.map.index_of_slot(plan.packed->begin[results.rank[i]] + of_result[results.index[i]], token);
  step.group.sync();
}

// Leaves out results of ranks that are masked by now: they will not come.
inline void leave_out_masked(const Plan& plan, TokenResults& results) {
  int kept = 0;
  for (int i = 0; i < results.count; ++i) {
    if (plan.is_masked(results.rank[i])) continue;
    results.index[kept] = results.index[i];
    results.k[kept] = results.k[i];
    results.rank[kept++] = results.rank[i];
  }
  results.count = kept;
}

// Reduces every token of this rank. False: a rank did not come.
template <ResultStep S>
bool receive_results(const S& step, int num_tokens, FixedShare share, const RowStarts& starts, const CombineArgs& in,
                     const CombineOut& out, TokenScratch& scratch) {
  for (int token = share.index; token < num_tokens; token += share.count) {
    find_own_results(step, token, in.by_last_k, scratch);
    if constexpr (S::Lookup::kHasHandle) {  // I11: the handle's mask may be older than this combine's
      if (step.group.thread() == 0) leave_out_masked(step.plan, scratch.results);
      step.group.sync();
    }
    if (!await_results(step, token, scratch.results) || !await_returned(step, token, scratch.results)) return false;
    if (out.weights != nullptr)
      sum_returned(step, token, scratch.results, out.weights + std::ptrdiff_t{token} * step.plan.shape.top_k);
    reduce_token(step, starts, in, out, token, scratch);
  }
  return true;
}

// I8: for a combine that is given up although its results are on their way. After true all have landed, so none can
// land in a slot of the next combine, where another rank may write. A rank that the mask takes out by now is not waited
// for.
template <ReceiveStep S>
bool drain_results(const S& step, FixedShare share, TokenScratch& scratch) {
  const Plan& plan = step.plan;
  TokenResults& results = scratch.results;
  const int num_tokens = tokens_of(plan, step.fabric, step.routing, plan.rank);
  for (int token = share.index; token < num_tokens; token += share.count) {
    find_own_results(step, token, false, scratch);
    if (step.group.thread() == 0) leave_out_masked(plan, results);
    step.group.sync();
    if (!await_results(step, token, results) || !await_returned(step, token, results)) return false;
    step.group.sync();
  }
  return true;
}

// I6: tells every peer that this rank has read all results of combine `result`, so that combine `result` + 1 may write
// their slots. The last step of a combine, also of one that is given up.
template <ThreadGroup G, SerialFabric F>
void post_summed(const Plan& plan, F& fabric, const G& g, Epoch result) {
  fabric.signal_each_after_puts(g, plan.shape.ranks, plan.map.summed(plan.rank), result + 1, plan.masked);
}

}  // namespace ferry::cpu
