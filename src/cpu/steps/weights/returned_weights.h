// Weights that go home with results (ExchangeOptions::returns_weights), in slots of their own beside those of the
// results. GPUs restate it in ferry/detail/cuda/steps/weights/returned_weights.cuh.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "cpu/steps/lookup/result_slot.h"
#include "cpu/steps/lookup/row_room.h"
#include "ferry/detail/layout/returned_weights.h"
#include "ferry/detail/protocol/step.h"

namespace ferry::cpu {

// What the caller gave of the rows. Where there was no room for a row, none of it goes home.
struct GivenWeights {
  const ReturnedRows& rows;

  // Rows by expert: a row's value is of its own k.
  ReturnedWeights of_rows(const Plan& plan, const RowStarts& starts, const LocalRows& found) const {
    ReturnedWeights weights;
    for (int i = 0; i < found.count; ++i)
      if (has(found.row[i]) && rows.room.has(plan, starts, found.row[i], found.local[i])) {
        weights.of_k |= 1u << found.k[i];
        weights.value[found.k[i]] = rows.in.row_weights[found.row[i]];
      }
    return weights;
  }
  // exact: of one row.
  ReturnedWeights of_row(const Plan& plan, const RowStarts& starts, const LocalRows& found, int i) const {
    ReturnedWeights weights;
    if (!has(found.row[i]) || !rows.room.has(plan, starts, found.row[i], found.local[i])) return weights;
    weights.of_k = 1;
    weights.value[0] = rows.in.row_weights[found.row[i]];
    return weights;
  }
  // Rows by source: all K values of the row, whatever its token names here.
  ReturnedWeights of_source_row(std::uint32_t row, int top_k) const {
    ReturnedWeights weights;
    if (!has(row) || !rows.room.has(row)) return weights;
    weights.of_k = 0xFFFFFFFFu >> (32 - top_k);
    std::memcpy(weights.value, rows.in.row_weights + static_cast<std::size_t>(row) * static_cast<std::size_t>(top_k),
                static_cast<std::size_t>(top_k) * sizeof(float));
    return weights;
  }

 private:
  bool has(std::uint32_t row) const { return rows.in.row_weights != nullptr && row < rows.in.num_row_weights; }
};

// I25: beside the result in `slot`. I15: where results are packed, so are the send buffers.
template <class S>
void return_weights(const S& step, TokenAt at, const ResultSlot& slot, const ReturnedWeights& weights,
                    const ResultCounts& counted) {
  const HeapMap& map = step.plan.map;
  const auto* from = reinterpret_cast<const std::byte*>(&weights);
  if (step.plan.packed != nullptr) {
    std::byte* sent = step.fabric.local(map.sent_returned(at.source, slot.sent_index));
    std::memcpy(sent, from, map.returned_bytes());
    from = sent;
  }
  step.fabric.put_then_signal(step.group, at.source,
                              {map.returned(at.token, slot.index), from, map.returned_bytes(),
                               map.returned_arrived(at.token, slot.index), step.epoch});
  counted.bytes[at.source] += map.returned_bytes();
}

// Waits for the returned weights of all results of an own token. Relies on I25. False: a rank did not come.
template <ReceiveStep S>
bool await_returned(const S& step, int token, const TokenResults& results) {
  if (!step.plan.map.returns_weights()) return true;
  const auto word = [&](int i) { return step.plan.map.returned_arrived(token, results.index[i]); };
  const auto site = [&](int i) { return WaitSite{Operation::combine, Phase::result, results.rank[i], token}; };
  return step.fabric.wait_for_each(step.group, results.count, word, step.epoch, site, nullptr);
}

// The first of the results of the smallest rank above `rank`; -1: there is none.
inline int next_result(const TokenResults& results, int rank) {
  int next = -1;
  for (int i = 0; i < results.count; ++i)
    if (results.rank[i] > rank && (next < 0 || results.rank[i] < results.rank[next])) next = i;
  return next;
}

// The values of one k of a token: the first as it is, others are added to it in float32, ranks ascending. 0: there is
// none. `results` may be in another order.
template <ReceiveStep S>
void sum_returned(const S& step, int token, const TokenResults& results, float* sums) {
  const Plan& plan = step.plan;
  std::uint32_t found = 0;
  for (int k = 0; k < plan.shape.top_k; ++k) sums[k] = 0.0f;
  for (int rank = -1, i = 0; (i = next_result(results, rank)) >= 0; rank = results.rank[i]) {
    for (int same = i; same < results.count; ++same) {  // exact: each of the rank's rows
      if (results.rank[same] != results.rank[i]) continue;
      const auto& weights =
          *reinterpret_cast<const ReturnedWeights*>(step.fabric.local(plan.map.returned(token, results.index[same])));
      for (int bit = 0; bit < plan.shape.top_k; ++bit) {
        if ((weights.of_k >> bit & 1u) == 0) continue;
        const int k = plan.exact ? results.k[same] : bit;
        sums[k] = (found >> k & 1u) != 0 ? sums[k] + weights.value[bit] : weights.value[bit];
        found |= 1u << k;
      }
    }
  }
}

}  // namespace ferry::cpu
