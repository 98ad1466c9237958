// AbortWord: the word that a rank which gives up writes at every peer: epoch << 16 | relayed << 15 | rank waited for +
// 1. And how to find the missing rank from these words (I10).
#pragma once

#include <cstdint>
#include <vector>

#include "ferry/detail/base/order.h"
#include "ferry/portable.h"

namespace ferry {

// Relayed: this rank gave up only because another did. Such a word ends no wait.
inline constexpr Epoch kRelayed = Epoch{1} << 15;

// OtherRouting: this rank waited for nobody; the rank named gave a handle of another dispatch, or only one of them gave
// one.
inline constexpr Epoch kOtherRouting = Epoch{1} << 13;

FERRY_HD constexpr Epoch abort_word(Epoch epoch, bool relayed, int waited_for) {
  return epoch << 16 | (relayed ? kRelayed : 0) | static_cast<Epoch>(waited_for + 1);
}
FERRY_HD constexpr bool ends_waits(Epoch word) { return word != 0 && (word & kRelayed) == 0; }
FERRY_HD constexpr int rank_waited_for(Epoch word) { return static_cast<int>(word & (kOtherRouting - 1)) - 1; }

// The first rank whose word ends the waits of others, and the rank that it waited for; nobody(): there is none.
struct FirstAbort {
  int reported_by = -1;
  int waited_for = -1;
  FERRY_HD bool nobody() const { return reported_by < 0; }
};
// `word_of(rank)` is a rank's abort word, or 0 if it does not count.
template <class WordOf>
FERRY_HD FirstAbort first_abort(int ranks, const WordOf& word_of) {
  for (int rank = 0; rank < ranks; ++rank)
    if (const Epoch word = word_of(rank); ends_waits(word)) return {rank, rank_waited_for(word)};
  return {};
}

// I10: when a rank is missing, other ranks wait for each other too, and the deadline of any of them may pass first.
// Follows their words from `named` to a rank without a word: it is the missing one. `word_of(rank)` is a rank's abort
// word, or 0 if none came in time. `rank` itself waited for `waited_for`. If ranks wait for each other in a circle, the
// word of the first to give up counts.
template <class WordOf>
int follow_abort_words(int named, int rank, int waited_for, int ranks, const WordOf& word_of) {
  std::vector<bool> seen(static_cast<std::size_t>(ranks));
  for (int suspect = named; suspect >= 0 && suspect < ranks && !seen[static_cast<std::size_t>(suspect)];) {
    seen[static_cast<std::size_t>(suspect)] = true;
    const Epoch word = suspect == rank ? abort_word(0, false, waited_for) : word_of(suspect);
    if (word == 0) return suspect;
    suspect = rank_waited_for(word);
  }
  return named;
}

}  // namespace ferry
