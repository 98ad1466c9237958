// AbortWord: the word that a rank writes at every peer when it gives up, aborts or leaves. And how to find the missing
// rank from these words (I10).
//
//   bits      it gives up or aborts          it left
//   16 to 63  the epoch that it waited for   the newest routing, message and result that it sent, 16 bits each
//   15        kRelayed                       0
//   14        0                              kLeft
//   13        kOtherRouting                  kLeftUnsent
//   12        kAborts                        kLeftSummed
//   0 to 11   1 + the rank that it names     1 + its own rank
#pragma once

#include <cstdint>
#include <vector>

#include "ferry/detail/base/order.h"
#include "ferry/error.h"
#include "ferry/formats/portable.h"
#include "ferry/shape.h"

namespace ferry {

// This rank gave up only because another did. Such a word ends no wait.
inline constexpr Epoch kRelayed = Epoch{1} << 15;
// This rank destroyed its exchange. Such a word ends the waits for what the rank never sent, and no others: so it need
// not come after the rank's puts.
inline constexpr Epoch kLeft = Epoch{1} << 14;
// This rank did not wait. The rank that it names gave a handle of another dispatch, or only one of the two gave one, or
// another reduction.
inline constexpr Epoch kOtherRouting = Epoch{1} << 13;
// The rank's caller aborted the world.
inline constexpr Epoch kAborts = Epoch{1} << 12;
// With kLeft: the rank had read the results of all its combines.
inline constexpr Epoch kLeftSummed = kAborts;
// With kLeft: it had begun its newest combine, and sent no results: they wait for late weights.
inline constexpr Epoch kLeftUnsent = kOtherRouting;
static_assert(kMaxRanks < static_cast<int>(kAborts));

FERRY_HD constexpr Epoch abort_word(Epoch epoch, bool relayed, int waited_for) {
  return epoch << 16 | (relayed ? kRelayed : 0) | static_cast<Epoch>(waited_for + 1);
}
FERRY_HD constexpr bool ends_waits(Epoch word) { return word != 0 && (word & (kRelayed | kLeft)) == 0; }
FERRY_HD constexpr int rank_waited_for(Epoch word) { return static_cast<int>(word & (kAborts - 1)) - 1; }
// The word of `rank` as one that names itself: where it names a rank that is masked here, `rank` is the one that
// leaves.
FERRY_HD constexpr Epoch naming_itself(Epoch word, int rank) {
  return (word & ~(kAborts - 1)) | static_cast<Epoch>(rank + 1);
}

// The newest of each kind that a rank had sent when it left (I13).
struct LastSent {
  Epoch routing = 0;
  Epoch message = 0;
  Epoch result = 0;
  bool summed = true;   // it had read all results of its newest combine
  bool unsent = false;  // it had sent no results of its newest combine
};
// The low 16 bits of each number are enough: ranks are never that far apart.
FERRY_HD constexpr Epoch left_word(const LastSent& sent, int rank) {
  return (sent.result & 0xffff) << 48 | (sent.message & 0xffff) << 32 | (sent.routing & 0xffff) << 16 | kLeft |
         (sent.summed ? kLeftSummed : 0) | (sent.unsent ? kLeftUnsent : 0) | static_cast<Epoch>(rank + 1);
}
// Whether the rank that wrote this word has left without sending what a wait in this phase for this number needs.
FERRY_HD constexpr bool never_comes(Epoch word, Phase phase, Epoch wanted) {
  if ((word & kLeft) == 0 || phase == Phase::none) return false;
  Epoch sent = word >> 32;
  if (phase == Phase::routing) sent = word >> 16;
  if (phase == Phase::result || phase == Phase::summed || phase == Phase::weights) sent = word >> 48;
  if (phase == Phase::result && (word & kLeftUnsent) != 0) --sent;
  if (phase == Phase::summed && (word & kLeftSummed) != 0) ++sent;
  const Epoch ahead = (wanted - sent) & 0xffff;
  return ahead != 0 && ahead < 0x8000;
}
// What a rank's own word says of it.
constexpr Absence absence_of(Epoch word, int rank) {
  if (rank_waited_for(word) != rank) return Absence::late;
  if ((word & kLeft) != 0) return Absence::left;
  return (word & kAborts) != 0 ? Absence::aborted : Absence::late;
}

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
// Follows their words from `named` to a rank that has no word, or that names itself: that rank is the missing one.
// `word_of(rank)` is a rank's abort word, or 0 if none came in time. `rank` itself waited for `waited_for`. If ranks
// wait for each other in a circle, the word of the first to give up counts.
template <class WordOf>
int follow_abort_words(int named, int rank, int waited_for, int ranks, const WordOf& word_of) {
  std::vector<bool> seen(static_cast<std::size_t>(ranks));
  for (int suspect = named; suspect >= 0 && suspect < ranks && !seen[static_cast<std::size_t>(suspect)];) {
    seen[static_cast<std::size_t>(suspect)] = true;
    const Epoch word = suspect == rank ? abort_word(0, false, waited_for) : word_of(suspect);
    if (word == 0 || rank_waited_for(word) == suspect) return suspect;
    suspect = rank_waited_for(word);
  }
  return named;
}

}  // namespace ferry
