// RowPlaces: where the rows of a dispatch lie, and for which of them its outputs have room.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ferry/detail/layout/token_list.h"
#include "ferry/detail/protocol/contracts/round.h"
#include "ferry/detail/protocol/contracts/token_lookup.h"

namespace ferry {

// by_source. I23: the row of a token, from the token lists of all sources: rows of the sources before + tokens of its
// own source before it that come here. Every row number of by_source comes from here.
struct SourceRows {
  const std::uint32_t* offsets = nullptr;  // [ranks + 1]: source_offsets
  const std::uint64_t* lists = nullptr;    // [ranks, words]
  std::size_t words = 0;                   // of a list

  FERRY_HD std::uint32_t row_of(TokenAt at) const {
    return offsets[at.source] + tokens_before(word(at), at.token % kTokensOfListWord);
  }
  FERRY_HD bool has(TokenAt at) const { return comes(word(at), at.token % kTokensOfListWord); }

 private:
  FERRY_HD std::uint64_t word(TokenAt at) const {
    return lists[static_cast<std::size_t>(at.source) * words + 1 +
                 static_cast<std::size_t>(at.token / kTokensOfListWord)];
  }
};

// Which rows of a dispatch its outputs have room for (Overflow). The others are not written, and their results are
// zeros.
struct RowRoom {
  static constexpr std::uint32_t kAll = UINT32_MAX;
  std::uint32_t rows = kAll;      // in all
  std::uint32_t of_group = kAll;  // padded: of one expert

  FERRY_HD bool holds_all() const { return rows == kAll && of_group == kAll; }
  FERRY_HD bool has(std::uint32_t row) const { return row < rows; }
  // The same of a row of a local expert.
  FERRY_HD bool has(const Plan& plan, const RowStarts& starts, std::uint32_t row, int local) const {
    return row < rows && (of_group == kAll || row - starts.group[local + plan.shared_groups] < of_group);
  }

  // Leaves only those that it has.
  FERRY_HD void keep_fitting(const Plan& plan, const RowStarts& starts, LocalRows& found) const {
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

  // Fills `to` with the starts of a group that end where the room does. `starts` are the true ones.
  FERRY_HD void fit(int group, const RowStarts& starts, RowStartsToFill to) const {
    const std::uint32_t first = lesser(starts.group[group], rows);
    to.filled[group] = lesser(lesser(starts.filled[group], rows - first), of_group);
    to.group[group] = first;
  }
  FERRY_HD static constexpr std::uint32_t lesser(std::uint32_t a, std::uint32_t b) { return a < b ? a : b; }
};

// What a step that lays rows out knows of them before the first message comes.
struct RowPlaces {
  RowStarts starts;
  SourceRows by_source{};  // only of that order
  RowRoom room{};
};

// The room of a dispatch's outputs.
FERRY_HD inline RowRoom room_of(const RowsOut& out) {
  if (!out.may_overflow) return {};
  constexpr std::int64_t kMost = RowRoom::kAll - 1;
  const auto rows = static_cast<std::uint32_t>(out.row_capacity < kMost ? out.row_capacity : kMost);
  return {rows, out.order == RowOrder::padded ? out.expert_stride : RowRoom::kAll};
}

}  // namespace ferry
