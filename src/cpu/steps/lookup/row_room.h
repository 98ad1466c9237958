// RowRoom: which rows of a dispatch its outputs have room for (DispatchInput::overflow). The others are not written,
// and stand for zeros in combine. Nothing that travels depends on it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ferry/detail/protocol/contracts/args.h"
#include "ferry/detail/protocol/contracts/row_places.h"
#include "ferry/detail/protocol/contracts/token_lookup.h"
#include "ferry/detail/protocol/rows_by_source.h"

namespace ferry::cpu {

// Row starts, and the first rows of sources, that end where the room does.
class FittingRows {
 public:
  FittingRows(const Plan& plan, const RowRoom& room, const RowStarts& starts, const SourceRows& by_source)
      : words_(starts.of_source, starts.of_source + row_start_words(plan)), by_source_(by_source) {
    const RowStartsToFill to = row_starts_at(plan, words_.data());
    starts_ = to;
    for (int group = 0; group < plan.groups(); ++group) room.fit(group, starts, to);
    to.group[plan.groups()] = std::min(starts.group[plan.groups()], room.rows);
    if (by_source.offsets == nullptr) return;
    for (int source = 0; source <= plan.shape.ranks; ++source)
      offsets_.push_back(std::min(by_source.offsets[source], room.rows));
    by_source_.offsets = offsets_.data();
  }
  FittingRows(const FittingRows&) = delete;
  FittingRows& operator=(const FittingRows&) = delete;

  const RowStarts& starts() const { return starts_; }
  const SourceRows& by_source() const { return by_source_; }

 private:
  std::vector<std::uint32_t> words_;
  RowStarts starts_;
  SourceRows by_source_;
  std::vector<std::uint32_t> offsets_;
};

// The rows that a combine is given. Those for which its dispatch had no room are zeros.
struct ReturnedRows {
  const CombineArgs& in;
  RowRoom room{};
  const std::byte* zeros = nullptr;  // a row of them, of any dtype; where the room does not hold all

  SumRow at(std::uint32_t row, bool is_there, float weight) const {
    const bool is_given = zeros == nullptr || (is_there && row < in.num_rows);
    return is_given ? in.row(row, weight) : SumRow{zeros, weight, in.dtype};
  }
  SumRow of_expert(const Plan& plan, const RowStarts& starts, const LocalRows& found, int i, float weight) const {
    return at(found.row[i], room.has(plan, starts, found.row[i], found.local[i]), weight);
  }
};

}  // namespace ferry::cpu
