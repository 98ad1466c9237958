// AbortWord: what a rank that gives up writes at every peer, epoch << 16 | relayed << 15 | rank waited for + 1; and the
// way from the rank that was named first to the one that is missing (I10).
#pragma once

#include <cstdint>
#include <vector>

#include "ferry/detail/base/order.h"
#include "ferry/portable.h"

namespace ferry {

// Relayed: this rank gave up only because another did. Such a word ends no wait.
inline constexpr Epoch kRelayed = Epoch{1} << 15;

FERRY_HD constexpr Epoch abort_word(Epoch epoch, bool relayed, int waited_for) {
  return epoch << 16 | (relayed ? kRelayed : 0) | static_cast<Epoch>(waited_for + 1);
}
FERRY_HD constexpr bool ends_waits(Epoch word) { return word != 0 && (word & kRelayed) == 0; }
FERRY_HD constexpr int rank_waited_for(Epoch word) { return static_cast<int>(word & (kRelayed - 1)) - 1; }

// The first rank whose word ends the others' waits, and whom it waited for; nobody: none does.
struct FirstAbort {
  int reported_by = -1;
  int waited_for = -1;
  FERRY_HD bool nobody() const { return reported_by < 0; }
};
// `word_of(rank)` gives a rank's abort word, or 0 where it counts for nothing.
template <class WordOf>
FERRY_HD FirstAbort first_abort(int ranks, const WordOf& word_of) {
  for (int rank = 0; rank < ranks; ++rank)
    if (const Epoch word = word_of(rank); ends_waits(word)) return {rank, rank_waited_for(word)};
  return {};
}

// I10: several ranks wait for each other when one is missing, and any of them may be the first whose deadline passes.
// Follows their words from `named` to a rank that says nothing, which is the culprit. `word_of(rank)` gives a rank's
// abort word, or 0 where none came in the time that the others are given to say theirs. `rank` itself waited for
// `waited_for`. Where they wait for each other, the first to give up is believed.
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
