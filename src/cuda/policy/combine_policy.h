// The launch policy of a combine: how many blocks send results, and how many sum what has arrived.
//
//   regime        when (the first that holds)              blocks that send                  blocks that sum
//   few_tokens    a block for each result and token        one for each result, in place     the others
//   -- each block sends or sums: many results, all ranks are stored to, at least 3 blocks:
//   few_blocks    at most half of the multiprocessors,     their share of the bytes           the others
//                 rows through shared memory               (or all, and then all sum: copying_combine)
//   one_rank      one rank, many bytes and rows of each    as many as make 5 MB at once      the others
//   many_tokens   several ranks                            as many as make 9 MB at once      the others
//   -- every block sends and then sums, from buffers:
//   remote        a rank is reached by puts                all                               all
//   some_tokens   otherwise                                all                               all
// A call that only sends is few_tokens, few_blocks or some_tokens, one that only receives few_tokens or some_tokens;
// one of the two columns is empty then.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/policy/problem.h"
#include "cuda/policy/team_sizes.h"

namespace ferry::cuda {

// ---- what all regimes share

// Results that leave, and tokens that are summed.
constexpr int results_to_send(const Problem& problem) {
  return problem.sends ? std::max(problem.arrivals, kMinReceivers) : 0;
}
constexpr int bytes_of_result(const Problem& problem) {
  return problem.result_bytes > 0 ? problem.result_bytes : 2 * std::max(1, problem.hidden);
}
constexpr int tokens_to_sum(const Problem& problem) { return problem.receives ? std::max(problem.num_tokens, 1) : 0; }

// Tokens that sending teams look at: every token of every rank. One without a result is soon over, so where most are
// such, only the others count.
constexpr int turns_to_send(const Problem& problem) {
  const int tokens = problem.ranks * problem.num_tokens;
  return 2 * problem.arrivals >= tokens ? std::max(tokens, problem.arrivals) : problem.arrivals;
}

// Threads that sum a token. Smaller teams finish it late, larger ones have too few rows in flight.
inline constexpr int kMinSumThreads = 128;  // commit f96d143: 4096 tokens 240 to 236 us, 1024 78.6 to 75.6

// Few teams prefetch the rows of their next token. The rows of many teams are more than the L2 cache holds, and are
// gone when they are wanted.
inline constexpr int kMaxPrefetchingTeams = 264;  // log: Small rounds, "Why asking for rows ahead was slow"
constexpr bool prefetches(int senders, int send_team_threads, int results) {
  const int teams = senders * (kThreads / send_team_threads);
  return teams <= kMaxPrefetchingTeams && 2 * teams <= results;
}

// Blocks of a kernel that is launched while this one ends go where there is room. Then some multiprocessors have two
// sending blocks of a dispatch, which costs large rounds more than waiting does. Few blocks have a multiprocessor each.
inline constexpr int kMinResultsToTriggerLate = 2048;  // log: What the scales kernel cost
constexpr bool triggers_late(const DeviceLimits& limits, const Problem& problem) {
  return !has_few_blocks(limits) && problem.arrivals >= kMinResultsToTriggerLate;
}

// Threads of a team that sends: as few as its turns need, but not so few that the results of all teams crowd the links.
// Results beyond a full link wait there, and so do the signals behind them.
inline constexpr int kMaxBytesLeaving = 10 << 20;  // log: Whole lines, second table and the text below it
constexpr int max_result_teams(int senders, const Problem& problem) {
  const std::int64_t leaving = std::int64_t{senders} * bytes_of_result(problem) * (problem.ranks - 1) /
                               problem.ranks;  // of one team of each block
  int teams = problem.buffer_teams;
  while (teams > 1 && leaving * teams > kMaxBytesLeaving) teams /= 2;
  return teams;
}
constexpr int send_threads(int senders, const Problem& problem) {
  const int turns = std::max(results_to_send(problem), problem.sends ? turns_to_send(problem) : 0);
  return team_threads_for(std::max(1, senders), turns, max_result_teams(senders, problem));
}

// ---- few_tokens: a block for each result, and up to kMaxTeamBlocks for each token. Results are made in their slots,
// since stores of many threads arrive sooner than bulk copies (log: First versions, "results straight into their
// slots").
constexpr bool has_block_for_each(const DeviceLimits& limits, const Problem& problem) {
  return results_to_send(problem) + tokens_to_sum(problem) <= std::max(1, limits.blocks());
}
constexpr CombinePolicy few_tokens_combine(const DeviceLimits& limits, const Problem& problem) {
  const int senders = results_to_send(problem);
  const int tokens = tokens_to_sum(problem);
  const int receivers = std::min(std::max(1, limits.blocks()) - senders, kMaxTeamBlocks * tokens);
  const int threads = send_threads(senders, problem);
  return {.blocks = senders + receivers,
          .roles = {.senders = senders,
                    .first_receiver = senders,
                    .send_team_threads = threads,
                    .receive_team_threads = std::max(kMinSumThreads, warpwise_team_threads_for(receivers, tokens)),
                    .in_place = true,
                    .prefetches = prefetches(senders, threads, results_to_send(problem)),
                    .triggers_late = triggers_late(limits, problem)},
          .pdl = limits.is_exclusive};
}

// ---- some_tokens, remote: every block sends, from buffers, and then sums.
constexpr CombinePolicy some_tokens_combine(const DeviceLimits& limits, const Problem& problem) {
  const int results = results_to_send(problem);
  const int tokens = tokens_to_sum(problem);
  const int blocks = std::min(std::max(1, limits.blocks()), std::max(results, tokens));
  const int senders = problem.sends ? blocks : 0;
  const int threads = send_threads(senders, problem);
  return {.blocks = blocks,
          .roles = {.senders = senders,
                    .send_team_threads = threads,
                    .receive_team_threads = std::max(kMinSumThreads, warpwise_team_threads_for(blocks, tokens)),
                    .prefetches = prefetches(senders, threads, results),
                    .triggers_late = triggers_late(limits, problem)},
          .pdl = limits.is_exclusive};
}
constexpr CombinePolicy remote_combine(const DeviceLimits& limits, const Problem& problem) {
  return some_tokens_combine(limits, problem);
}

// ---- many_tokens: each block sends or sums. At most two thirds of the blocks send. They have as many teams as fill
// the links, and make results in their slots.
//   kMaxBytesSummed   results that are being made at once: log, Stores; cuda_4xh200.jsonl:106-129 (before: 82-105)
//   kMinResultsPerBlock   below, blocks do both: chosen with it (80cb07a), not measured apart
//   kMinRowsOfResult  rows come through shared memory: log, Few blocks, "all blocks, combine"
inline constexpr double kMaxBytesSummed = 9e6;
inline constexpr int kMinResultsPerBlock = 6;
inline constexpr double kMinRowsOfResult = 3;

// Rows come through shared memory where blocks are few, since a block then needs more loads in flight than registers
// hold; and where a result is of many rows, since then the rows take the time and not the links.
constexpr bool is_pipelined(const DeviceLimits& limits, const Problem& problem) {
  return problem.has_pipeline &&
         (has_few_blocks(limits) || expected_rows(problem) > kMinRowsOfResult * expected_results(problem));
}

// Short rows are summed by smaller teams: a thread has kColumnsOfSumThread columns at least, unless there is only one
// rank's result, or each token has a warp (log: Large tables and short rows, "smaller teams"; one rank: log, One rank).
inline constexpr int kColumnsOfSumThread = 32;
constexpr int min_sum_threads(const Problem& problem, int receivers) {
  const bool is_short = problem.hidden <= kColumnsOfSumThread * kMinSumThreads;
  if (is_short && problem.num_tokens <= receivers * kMostTeams) return kLeastTeamThreads;
  return problem.ranks == 1 || problem.hidden < kColumnsOfSumThread * kMinSumThreads ? kMinSumThreads / 2
                                                                                     : kMinSumThreads;
}

struct ResultSenders {
  int blocks = 1;
  int teams = 1;  // of a block
  constexpr int threads() const { return kThreads / teams; }
};
// The fewest teams of a block with which at most `max_blocks` blocks make `max_bytes` of results at once.
constexpr ResultSenders senders_of_bytes(const Problem& problem, double max_bytes, int max_blocks,
                                         int most_teams = kMostTeams) {
  const int wanted = std::max(1, static_cast<int>(max_bytes / bytes_of_result(problem)));
  int teams = 1;
  while (teams < most_teams && max_blocks * teams < wanted) teams *= 2;
  return {std::clamp(wanted / teams, 1, max_blocks), teams};
}

inline constexpr int kMostTeamsReadingTwice = 8;  // log: Results in few bits
constexpr CombinePolicy many_tokens_combine(const DeviceLimits& limits, const Problem& problem,
                                            double max_bytes = kMaxBytesSummed) {
  const int blocks = limits.blocks();
  const bool pipelined = is_pipelined(limits, problem);
  const int most_teams = problem.reads_rows_twice ? kMostTeamsReadingTwice : kMostTeams;
  const ResultSenders senders = senders_of_bytes(problem, max_bytes, 2 * blocks / 3, most_teams);
  const int receivers = blocks - senders.blocks;
  return {.blocks = blocks,
          .roles = {.senders = senders.blocks,
                    .first_receiver = senders.blocks,
                    .send_team_threads = senders.threads(),
                    .receive_team_threads = std::max(min_sum_threads(problem, receivers),
                                                     warpwise_team_threads_for(receivers, problem.num_tokens)),
                    .in_place = true,
                    .prefetches = !pipelined && prefetches(senders.blocks, senders.threads(), problem.arrivals),
                    .pipelined = pipelined,
                    .triggers_late = triggers_late(limits, problem)},
          .pdl = limits.is_exclusive};
}

// ---- one_rank: there are no links to fill, but rows through shared memory pay where results are more than half of an
// L2 cache. With many blocks, results are made in smaller batches than with several ranks: more would have too little
// room.
//   all: log, One rank, "Combine"; cuda_1xh200.jsonl:38-66 (before: 1-30)
inline constexpr double kMinBytesOfOneRank = 25e6;
inline constexpr double kMaxBytesSummedOfOneRank = 5e6;

constexpr CombinePolicy one_rank_combine(const DeviceLimits& limits, const Problem& problem) {
  return many_tokens_combine(limits, problem, kMaxBytesSummedOfOneRank);
}

// ---- few_blocks: rows come through shared memory. Senders are their share of the bytes that all blocks read and
// write: of each token all rows and all results, and then all results and a sum. Receiving teams may be of one warp.
//   log, Few blocks, "Combine"; cuda_2xh200.jsonl:214-243 (before: 174-183); one rank: cuda_1xh200.jsonl:67-73
constexpr double senders_by_bytes(int blocks, const Problem& problem) {
  const double results = expected_results(problem);
  const double sent = combined_rows(problem) + results;
  return blocks * sent / (sent + results + 1);
}

// Results that are one row each, with weight 1, are copied (row_copies.cuh). Up to so many for each warp of all blocks,
// all blocks copy and then all sum. With more, some blocks sum while the others keep the links busy.
//   log, Few blocks, "Copied results"
inline constexpr int kMaxCopiesOfWarp = 8;
constexpr bool copies_rows(const Problem& problem) {
  return problem.may_copy_results && (problem.exact || problem.order == RowOrder::by_source);
}
constexpr CombinePolicy copying_combine(const DeviceLimits& limits, const Problem& problem) {
  const int blocks = limits.blocks();
  const bool all_copy = !problem.receives || turns_to_send(problem) <= kMaxCopiesOfWarp * kMostTeams * blocks;
  const int by_bytes = static_cast<int>(senders_by_bytes(blocks, problem)) + 1;
  const int senders = all_copy ? blocks : std::clamp(by_bytes, 1, blocks - 1);
  const int first_receiver = all_copy ? 0 : senders;
  // All blocks sum at once, so a token may have twice as many warps.
  const int tokens = all_copy ? problem.num_tokens / 2 : problem.num_tokens;
  return {.blocks = blocks,
          .roles = {.senders = senders,
                    .first_receiver = first_receiver,
                    .send_team_threads = kLeastTeamThreads,
                    .receive_team_threads =
                        std::max(kLeastTeamThreads, warpwise_team_threads_for(blocks - first_receiver, tokens)),
                    .in_place = true,
                    .pipelined = true,
                    .copies_rows = true},
          .pdl = limits.is_exclusive};
}

constexpr CombinePolicy few_blocks_combine(const DeviceLimits& limits, const Problem& problem) {
  if (copies_rows(problem)) return copying_combine(limits, problem);
  const int blocks = limits.blocks();
  const int by_bytes = static_cast<int>(senders_by_bytes(blocks, problem));
  const int most_senders = problem.receives ? std::clamp(by_bytes, 1, blocks - 1) : blocks;
  const ResultSenders senders = senders_of_bytes(problem, kMaxBytesSummed, most_senders);
  return {.blocks = blocks,
          .roles = {.senders = senders.blocks,
                    .first_receiver = senders.blocks,
                    .send_team_threads = senders.threads(),
                    .receive_team_threads =
                        std::max(kLeastTeamThreads,
                                 warpwise_team_threads_for(std::max(1, blocks - senders.blocks), problem.num_tokens)),
                    .in_place = true,
                    .pipelined = true},
          .pdl = limits.is_exclusive};
}

// ---- the choice

constexpr bool has_many_results(const DeviceLimits& limits, const Problem& problem) {
  const int blocks = limits.blocks();
  return problem.sends && !problem.has_remote_ranks && blocks >= 3 &&
         turns_to_send(problem) >= kMinResultsPerBlock * blocks;
}

constexpr Regime combine_regime(const DeviceLimits& limits, const Problem& problem) {
  if (has_block_for_each(limits, problem)) return Regime::few_tokens;
  if (has_many_results(limits, problem)) {
    const bool pipelined = is_pipelined(limits, problem);
    if (pipelined && has_few_blocks(limits)) return Regime::few_blocks;
    if (problem.receives && problem.ranks > 1) return Regime::many_tokens;
    if (problem.receives && pipelined && 2.0 * problem.hidden * problem.arrivals >= kMinBytesOfOneRank)
      return Regime::one_rank;
  }
  return problem.has_remote_ranks ? Regime::remote : Regime::some_tokens;
}

constexpr CombinePolicy combine_policy(const DeviceLimits& limits, const Problem& problem) {
  switch (combine_regime(limits, problem)) {
    case Regime::few_tokens:
      return few_tokens_combine(limits, problem);
    case Regime::many_tokens:
      return many_tokens_combine(limits, problem);
    case Regime::few_blocks:
      return few_blocks_combine(limits, problem);
    case Regime::one_rank:
      return one_rank_combine(limits, problem);
    case Regime::remote:
      return remote_combine(limits, problem);
    case Regime::receive_only:
    case Regime::some_tokens:
      return some_tokens_combine(limits, problem);
  }
  return {};
}

}  // namespace ferry::cuda
