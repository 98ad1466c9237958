// KeptSourceRows: the token lists of a routing that is known from a handle. A handle holds no lists: they follow from
// which tokens have rows in it.
#pragma once

#include <vector>

#include "cpu/steps/lookup/handle_lookup.h"
#include "cpu/steps/routing/token_lists.h"
#include "ferry/detail/protocol/rows_by_source.h"

namespace ferry::cpu {

class KeptSourceRows {
 public:
  // `plan` has the mask of the handle's dispatch: whom a mask takes out later keeps its rows.
  KeptSourceRows(const Plan& plan, const HandleLookup& lookup, const RowStarts& starts)
      : words_(token_list_words(plan.shape.max_tokens)),
        lists_(words_ * static_cast<std::size_t>(plan.shape.ranks)),
        offsets_(static_cast<std::size_t>(plan.shape.ranks) + 1) {
    LocalRows found;
    for (int source = 0; source < plan.shape.ranks; ++source) {
      std::uint64_t* list = lists_.data() + static_cast<std::size_t>(source) * words_;
      const int tokens = static_cast<int>(starts.tokens[source]);
      for (int token = 0; token < tokens; ++token) {
        lookup.list_rows(plan, starts, {source, token}, found);
        if (found.count != 0) list[1 + token / kTokensOfListWord] |= std::uint64_t{1} << token % kTokensOfListWord;
      }
      count_tokens(list, tokens, 0);
    }
    find_source_offsets(plan, lists_.data(), words_, offsets_.data());
  }

  // Good for as long as this is.
  SourceRows rows() const { return {offsets_.data(), lists_.data(), words_}; }

 private:
  std::size_t words_;
  std::vector<std::uint64_t> lists_;
  std::vector<std::uint32_t> offsets_;
};

}  // namespace ferry::cpu
