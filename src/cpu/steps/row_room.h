// RowRoom: which rows of a dispatch its outputs have room for (DispatchInput::overflow). The others are not written,
// and stand for zeros in combine. Nothing that travels depends on it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ferry/detail/protocol/args.h"
#include "ferry/detail/protocol/rows_by_source.h"
#include "ferry/detail/protocol/token_lookup.h"

namespace ferry::cpu {

struct RowRoom {
  static constexpr std::uint32_t kAll = UINT32_MAX;
  std::uint32_t rows = kAll;      // in all
  std::uint32_t of_group = kAll;  // padded: of one expert

  bool holds_all() const { return rows == kAll && of_group == kAll; }
  bool has(std::uint32_t row) const { return row < rows; }
  // The same of a row of a local expert.
  bool has(const Plan& plan, const RowStarts& starts, std::uint32_t row, int local) const {
    return row < rows && (of_group == kAll || row - starts.group[local + plan.shared_groups] < of_group);
  }

  // Leaves only those that it has.
  void keep_fitting(const Plan& plan, const RowStarts& starts, LocalRows& found) const {
    if (holds_all()) return;
    int kept = 0;
    for (int i = 0; i < found.count; ++i) {
      if (!has(plan, starts, found.row[i], found.local[i])) continue;
      found.k[kept] = found.k[i];
      found.local[kept] = found.local[i];
      found.row[kept] = found.row[i];
      found.weight[kept++] = found.weight[i];
    }
    found.count = kept;
  }
};

// The room of a dispatch's outputs.
inline RowRoom room_of(const RowsOut& out) {
  if (!out.may_overflow) return {};
  const auto rows = static_cast<std::uint32_t>(std::min<std::int64_t>(out.row_capacity, RowRoom::kAll - 1));
  return {rows, out.order == RowOrder::padded ? out.expert_stride : RowRoom::kAll};
}

// Row starts, and the first rows of sources, that end where the room does.
class FittingRows {
 public:
  FittingRows(const Plan& plan, const RowRoom& room, const RowStarts& starts, const SourceRows& by_source)
      : words_(starts.of_source, starts.of_source + row_start_words(plan)),
        starts_(row_starts_at(plan, words_.data())),
        by_source_(by_source) {
    for (int group = 0; group < plan.groups(); ++group) {
      const std::uint32_t first = std::min(starts.group[group], room.rows);
      starts_.filled[group] = std::min({starts.filled[group], room.rows - first, room.of_group});
      starts_.group[group] = first;
    }
    starts_.group[plan.groups()] = std::min(starts.group[plan.groups()], room.rows);
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
