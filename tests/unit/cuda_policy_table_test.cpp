// The launch policies of H200s, as they print themselves: what was measured and chosen, one line for each case.
// Tuning changes lines here; the other tests of policies hold for any tuning.
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "cuda/policy/combine_policy.h"
#include "cuda/policy/dispatch_policy.h"
#include "cuda/policy/policy_text.h"

namespace ferry::cuda {
namespace {

struct Format {
  const char* name;
  int hidden;
  int message_bytes;
  int buffer_teams;
};
constexpr Format kFp8{.name = "fp8", .hidden = 7168, .message_bytes = 7392, .buffer_teams = 8};
constexpr Format kNvfp4{.name = "nvfp4", .hidden = 7168, .message_bytes = 4032, .buffer_teams = 16};
constexpr Format kBf16{.name = "bf16", .hidden = 7168, .message_bytes = 14336, .buffer_teams = 4};
constexpr Format kShortFp8{.name = "fp8", .hidden = 4096, .message_bytes = 4224, .buffer_teams = 16};

enum class Calls { whole, send, receive };

struct Case {
  int ranks = 1;
  int tokens = 1;
  Format format = kFp8;
  int top_k = 8;
  int max_blocks = 0;  // 0: no limit
  int result_bytes = 0;
  bool row_scale = false;
  bool remote = false;
  bool exact = false;
  Calls calls = Calls::whole;
  RowOrder order = RowOrder::by_expert;
};

DeviceLimits h200(const Case& c, int blocks_per_multiprocessor) {
  const int most = 132 * blocks_per_multiprocessor;
  return {.multiprocessors = 132,
          .blocks_per_multiprocessor = blocks_per_multiprocessor,
          .max_blocks = c.max_blocks == 0 ? most : c.max_blocks};
}

Problem problem_of(const Case& c) {
  return {.ranks = c.ranks,
          .num_tokens = c.tokens,
          .arrivals = std::min(c.ranks, c.top_k) * c.tokens,
          .table_parts = std::clamp(c.tokens / 32, 1, 32),
          .counts_all = c.tokens * c.top_k <= kMaxEntriesOfOneBlock,
          .buffer_teams = c.format.buffer_teams,
          .sends = c.calls != Calls::receive,
          .receives = c.calls != Calls::send,
          .hidden = c.format.hidden,
          .result_bytes = c.result_bytes,
          .reads_rows_twice = c.row_scale,
          .message_bytes = c.format.message_bytes,
          .groups = 256 / c.ranks,
          .top_k = c.top_k,
          .order = c.order,
          .has_remote_ranks = c.remote,
          .exact = c.exact,
          .may_copy_results = c.result_bytes == 0,
          .has_pipeline = true,
          .can_pair_blocks = !c.remote};
}

std::string name_of(const Case& c) {
  std::ostringstream out;
  out << c.ranks << " x " << c.tokens << ' ' << c.format.name << ' ' << c.format.hidden << " top-" << c.top_k;
  if (c.max_blocks > 0) out << " max " << c.max_blocks;
  if (c.result_bytes > 0) out << " results of " << c.result_bytes;
  if (c.remote) out << " remote";
  if (c.exact) out << " exact";
  if (c.order == RowOrder::by_source) out << " by_source";
  if (c.calls == Calls::send) out << " send";
  if (c.calls == Calls::receive) out << " receive";
  return out.str();
}

std::string dispatch_table(const std::vector<Case>& cases) {
  std::ostringstream out;
  for (const Case& c : cases) {
    const DeviceLimits limits = h200(c, 2);
    const Problem problem = problem_of(c);
    out << '\n'
        << name_of(c) << " | " << to_string(dispatch_regime(limits, problem)) << " | "
        << dispatch_policy(limits, problem);
  }
  return out.str();
}

std::string combine_table(const std::vector<Case>& cases) {
  std::ostringstream out;
  for (const Case& c : cases) {
    const DeviceLimits limits = h200(c, 1);
    Problem problem = problem_of(c);
    const int result_bytes = c.result_bytes > 0 ? c.result_bytes : 2 * c.format.hidden;
    problem.buffer_teams = result_bytes > 17920 ? 4 : result_bytes > 8960 ? 8 : 16;  // results fit in 140 KiB
    out << '\n'
        << name_of(c) << " | " << to_string(combine_regime(limits, problem)) << " | "
        << combine_policy(limits, problem);
  }
  return out.str();
}

const std::vector<Case> kDispatches = {
    {.ranks = 4, .tokens = 1},
    {.ranks = 4, .tokens = 8},
    {.ranks = 4, .tokens = 32},
    {.ranks = 4, .tokens = 128},
    {.ranks = 4, .tokens = 256},
    {.ranks = 4, .tokens = 512},
    {.ranks = 4, .tokens = 1024},
    {.ranks = 4, .tokens = 4096},
    {.ranks = 4, .tokens = 4096, .format = kBf16},
    {.ranks = 4, .tokens = 512, .format = kNvfp4},
    {.ranks = 4, .tokens = 1024, .format = kNvfp4},
    {.ranks = 4, .tokens = 4096, .format = kShortFp8},
    {.ranks = 4, .tokens = 4096, .format = kShortFp8, .top_k = 2},
    {.ranks = 2, .tokens = 128},
    {.ranks = 2, .tokens = 512},
    {.ranks = 2, .tokens = 4096},
    {.ranks = 8, .tokens = 128},
    {.ranks = 8, .tokens = 4096},
    {.ranks = 8, .tokens = 4096, .format = kBf16},
    {.ranks = 8, .tokens = 4096, .format = kNvfp4},
    {.ranks = 72, .tokens = 128},
    {.ranks = 4, .tokens = 8, .remote = true},
    {.ranks = 4, .tokens = 4096, .remote = true},
    {.ranks = 4, .tokens = 4096, .format = kNvfp4, .remote = true},
    {.ranks = 2, .tokens = 32, .max_blocks = 24},
    {.ranks = 2, .tokens = 4096, .max_blocks = 24},
    {.ranks = 2, .tokens = 4096, .max_blocks = 48},
    {.ranks = 2, .tokens = 4096, .max_blocks = 66},
    {.ranks = 2, .tokens = 4096, .max_blocks = 67},
    {.ranks = 2, .tokens = 4096, .max_blocks = 24, .remote = true},
    {.ranks = 2, .tokens = 4096, .max_blocks = 3},
    {.ranks = 1, .tokens = 1, .top_k = 4},
    {.ranks = 1, .tokens = 512, .top_k = 4},
    {.ranks = 1, .tokens = 8192, .top_k = 4},
    {.ranks = 1, .tokens = 8192},
    {.ranks = 1, .tokens = 8192, .format = kNvfp4},
    {.ranks = 1, .tokens = 8192, .format = kShortFp8, .top_k = 2},
    {.ranks = 1, .tokens = 8192, .top_k = 4, .max_blocks = 24},
    {.ranks = 4, .tokens = 128, .calls = Calls::send},
    {.ranks = 4, .tokens = 128, .calls = Calls::receive},
};

constexpr const char* kDispatchTable = R"(
4 x 1 fp8 7168 top-8 | few tokens | 35 blocks: 2 route (1 counts), 1 send x 512, 16 teams receive x 1024
4 x 8 fp8 7168 top-8 | few tokens | 106 blocks: 2 route (1 counts), 8 send x 512, 48 teams receive x 1024
4 x 32 fp8 7168 top-8 | few tokens | 226 blocks: 2 route (1 counts), 32 send x 512, 192 teams receive x 512
4 x 128 fp8 7168 top-8 | some tokens | 264 blocks: 5 route (1 counts), 44 send x 128, 860 teams receive x 128
4 x 256 fp8 7168 top-8 | some tokens | 264 blocks: 9 route (1 counts), 66 send x 128, 1512 teams receive x 64
4 x 512 fp8 7168 top-8 | many tokens | 264 blocks: 8 route, 75 send x 128 by stores, 2896 teams receive x 32
4 x 1024 fp8 7168 top-8 | many tokens | 264 blocks: 8 route, 75 send x 128 by stores, 2895 teams receive x 32
4 x 4096 fp8 7168 top-8 | many tokens | 264 blocks: 16 route, 75 send x 128 by stores, 2767 teams receive x 32
4 x 4096 bf16 7168 top-8 | many tokens | 264 blocks: 16 route, 38 send x 128 by stores, 3359 teams receive x 32
4 x 512 nvfp4 7168 top-8 | some tokens | 264 blocks: 8 route, 88 send x 128, 2688 teams receive x 32
4 x 1024 nvfp4 7168 top-8 | many tokens | 264 blocks: 8 route, 132 send x 128 by stores, 1983 teams receive x 32
4 x 4096 fp8 4096 top-8 | many tokens | 264 blocks: 16 route, 65 send x 64 by stores, 2927 teams receive x 32
4 x 4096 fp8 4096 top-2 | many tokens | 264 blocks: 8 route, 88 send x 64 by stores, 2687 teams receive x 32
2 x 128 fp8 7168 top-8 | some tokens | 264 blocks: 5 route (1 counts), 44 send x 128, 430 teams receive x 256
2 x 512 fp8 7168 top-8 | some tokens | 264 blocks: 8 route, 66 send x 128, 1520 teams receive x 64
2 x 4096 fp8 7168 top-8 | many tokens | 264 blocks: 16 route, 88 send x 64 by stores, 2559 teams receive x 32
8 x 128 fp8 7168 top-8 | some tokens | 264 blocks: 5 route (1 counts), 44 send x 128, 1720 teams receive x 64
8 x 4096 fp8 7168 top-8 | many tokens | 264 blocks: 16 route, 44 send x 128 by stores, 3263 teams receive x 32
8 x 4096 bf16 7168 top-8 | some tokens | 264 blocks: 16 route, 66 send x 128, 2911 teams receive x 32
8 x 4096 nvfp4 7168 top-8 | many tokens | 264 blocks: 16 route, 80 send x 128 by stores, 2687 teams receive x 32
72 x 128 fp8 7168 top-8 | some tokens | 264 blocks: 5 route (1 counts), 44 send x 128, 3439 teams receive x 32
4 x 8 fp8 7168 top-8 remote | remote | 105 blocks: 1 route, 8 send x 512, 48 teams receive x 1024
4 x 4096 fp8 7168 top-8 remote | remote | 264 blocks: 16 route, 66 send x 128, 2911 teams receive x 32
4 x 4096 nvfp4 7168 top-8 remote | remote | 264 blocks: 16 route, 88 send x 128, 2559 teams receive x 32
2 x 32 fp8 7168 top-8 max 24 | few blocks | 48 blocks in pairs: 2 route (1 counts), 24 send x 256, 88 teams receive x 128
2 x 4096 fp8 7168 top-8 max 24 | few blocks | 48 blocks in pairs: 8 route, 24 send x 64, 383 teams receive x 32, routing blocks too
2 x 4096 fp8 7168 top-8 max 48 | few blocks | 96 blocks in pairs: 8 route, 48 send x 128, 767 teams receive x 32, routing blocks too
2 x 4096 fp8 7168 top-8 max 66 | few blocks | 132 blocks in pairs: 8 route, 66 send x 128, 1055 teams receive x 32, routing blocks too
2 x 4096 fp8 7168 top-8 max 67 | some tokens | 67 blocks: 8 route, 36 send x 128, 495 teams receive x 32, routing blocks too
2 x 4096 fp8 7168 top-8 max 24 remote | few blocks | 24 blocks: 8 route, 11 send x 64, 207 teams receive x 32, routing blocks too
2 x 4096 fp8 7168 top-8 max 3 | few blocks | 3 blocks: 1 route, 1 send x 64, 31 teams receive x 32, routing blocks too
1 x 1 fp8 7168 top-4 | one rank | 35 blocks: 2 route (1 counts), 1 send x 512, 16 teams receive x 1024
1 x 512 fp8 7168 top-4 | one rank | 264 blocks: 8 route, 66 send x 64, 760 teams receive x 128
1 x 8192 fp8 7168 top-4 | one rank | 264 blocks: 16 route, 132 send x 128, 2112 teams receive x 32, routing blocks too
1 x 8192 fp8 7168 top-8 | one rank | 264 blocks: 32 route, 66 send x 128, 3168 teams receive x 32, routing blocks too
1 x 8192 nvfp4 7168 top-8 | one rank | 264 blocks: 32 route, 122 send x 64, 2272 teams receive x 32, routing blocks too
1 x 8192 fp8 4096 top-2 | one rank | 264 blocks: 8 route, 132 send x 64, 1984 teams receive x 32
1 x 8192 fp8 7168 top-4 max 24 | few blocks | 48 blocks in pairs: 8 route, 24 send x 64, 384 teams receive x 32, routing blocks too
4 x 128 fp8 7168 top-8 send | some tokens | 49 blocks: 5 route (1 counts), 44 send x 128, triggers at start
4 x 128 fp8 7168 top-8 receive | receive only | 264 blocks: 0 route, 0 send x 512, 528 teams receive x 256)";

TEST(CudaPolicyTable, DispatchOfH200s) { EXPECT_EQ(dispatch_table(kDispatches), kDispatchTable); }

const std::vector<Case> kCombines = {
    {.ranks = 4, .tokens = 1},
    {.ranks = 4, .tokens = 8},
    {.ranks = 4, .tokens = 32},
    {.ranks = 4, .tokens = 128},
    {.ranks = 4, .tokens = 512},
    {.ranks = 4, .tokens = 4096},
    {.ranks = 4, .tokens = 4096, .format = kShortFp8},
    {.ranks = 4, .tokens = 4096, .top_k = 2},
    {.ranks = 4, .tokens = 4096, .exact = true},
    {.ranks = 2, .tokens = 1},
    {.ranks = 2, .tokens = 128},
    {.ranks = 2, .tokens = 512},
    {.ranks = 2, .tokens = 4096},
    {.ranks = 2, .tokens = 4096, .exact = true},
    {.ranks = 8, .tokens = 128},
    {.ranks = 8, .tokens = 4096},
    {.ranks = 72, .tokens = 11},
    {.ranks = 4, .tokens = 8, .remote = true},
    {.ranks = 4, .tokens = 4096, .remote = true},
    {.ranks = 4, .tokens = 4096, .format = kShortFp8, .remote = true},
    {.ranks = 4, .tokens = 4096, .max_blocks = 24, .remote = true},
    {.ranks = 4, .tokens = 4096, .max_blocks = 24},
    {.ranks = 2, .tokens = 4096, .max_blocks = 24},
    {.ranks = 2, .tokens = 4096, .max_blocks = 48},
    {.ranks = 2, .tokens = 4096, .max_blocks = 66},
    {.ranks = 2, .tokens = 4096, .max_blocks = 67},
    {.ranks = 2, .tokens = 4096, .order = RowOrder::by_source},
    {.ranks = 2, .tokens = 128, .max_blocks = 24, .order = RowOrder::by_source},
    {.ranks = 2, .tokens = 1024, .max_blocks = 24, .order = RowOrder::by_source},
    {.ranks = 2, .tokens = 4096, .max_blocks = 24, .order = RowOrder::by_source},
    {.ranks = 2, .tokens = 4096, .max_blocks = 48, .order = RowOrder::by_source},
    {.ranks = 4, .tokens = 4096, .max_blocks = 24, .exact = true},
    {.ranks = 2, .tokens = 128, .result_bytes = 7392},
    {.ranks = 2, .tokens = 4096, .result_bytes = 7392},
    {.ranks = 2, .tokens = 4096, .result_bytes = 14336},
    {.ranks = 2, .tokens = 4096, .result_bytes = 28672},
    {.ranks = 4, .tokens = 4096, .result_bytes = 7392},
    {.ranks = 2, .tokens = 4096, .max_blocks = 24, .result_bytes = 7392},
    {.ranks = 2, .tokens = 4096, .result_bytes = 4048, .row_scale = true},
    {.ranks = 1, .tokens = 1, .top_k = 4},
    {.ranks = 1, .tokens = 1024, .top_k = 4},
    {.ranks = 1, .tokens = 8192, .top_k = 4},
    {.ranks = 1, .tokens = 8192, .top_k = 3},
    {.ranks = 1, .tokens = 8192, .top_k = 4, .max_blocks = 24},
    {.ranks = 4, .tokens = 4096, .calls = Calls::send},
    {.ranks = 4, .tokens = 4096, .max_blocks = 24, .calls = Calls::send},
    {.ranks = 4, .tokens = 4096, .max_blocks = 24, .calls = Calls::send, .order = RowOrder::by_source},
    {.ranks = 4, .tokens = 4096, .calls = Calls::receive},
};

constexpr const char* kCombineTable = R"(
4 x 1 fp8 7168 top-8 | few tokens | 34 blocks: 32 send x 512, from block 32 receive x 1024, in place
4 x 8 fp8 7168 top-8 | few tokens | 48 blocks: 32 send x 512, from block 32 receive x 1024, in place
4 x 32 fp8 7168 top-8 | some tokens | 128 blocks: 128 send x 512, from block 0 receive x 1024
4 x 128 fp8 7168 top-8 | some tokens | 132 blocks: 132 send x 128, from block 0 receive x 512
4 x 512 fp8 7168 top-8 | many tokens | 132 blocks: 78 send x 64, from block 78 receive x 128, in place, triggers late
4 x 4096 fp8 7168 top-8 | many tokens | 132 blocks: 78 send x 64, from block 78 receive x 128, in place, triggers late
4 x 4096 fp8 4096 top-8 | many tokens | 132 blocks: 68 send x 32, from block 68 receive x 128, in place, triggers late
4 x 4096 fp8 7168 top-2 | many tokens | 132 blocks: 78 send x 64, from block 78 receive x 128, in place, triggers late
4 x 4096 fp8 7168 top-8 exact | many tokens | 132 blocks: 78 send x 64, from block 78 receive x 128, in place, triggers late
2 x 1 fp8 7168 top-8 | few tokens | 34 blocks: 32 send x 512, from block 32 receive x 1024, in place
2 x 128 fp8 7168 top-8 | some tokens | 132 blocks: 132 send x 256, from block 0 receive x 512
2 x 512 fp8 7168 top-8 | many tokens | 132 blocks: 78 send x 64, from block 78 receive x 128, in place, pipelined
2 x 4096 fp8 7168 top-8 | many tokens | 132 blocks: 78 send x 64, from block 78 receive x 128, in place, pipelined, triggers late
2 x 4096 fp8 7168 top-8 exact | many tokens | 132 blocks: 78 send x 64, from block 78 receive x 128, in place, triggers late
8 x 128 fp8 7168 top-8 | many tokens | 132 blocks: 78 send x 64, from block 78 receive x 128, in place
8 x 4096 fp8 7168 top-8 | many tokens | 132 blocks: 78 send x 64, from block 78 receive x 128, in place, triggers late
72 x 11 fp8 7168 top-8 | few tokens | 110 blocks: 88 send x 512, from block 88 receive x 1024, in place
4 x 8 fp8 7168 top-8 remote | few tokens | 48 blocks: 32 send x 512, from block 32 receive x 1024, in place
4 x 4096 fp8 7168 top-8 remote | remote | 132 blocks: 132 send x 128, from block 0 receive x 128, triggers late
4 x 4096 fp8 4096 top-8 remote | remote | 132 blocks: 132 send x 64, from block 0 receive x 128, triggers late
4 x 4096 fp8 7168 top-8 max 24 remote | remote | 24 blocks: 24 send x 64, from block 0 receive x 128, prefetches
4 x 4096 fp8 7168 top-8 max 24 | few blocks | 24 blocks: 17 send x 32, from block 17 receive x 32, in place, pipelined
2 x 4096 fp8 7168 top-8 max 24 | few blocks | 24 blocks: 18 send x 32, from block 18 receive x 32, in place, pipelined
2 x 4096 fp8 7168 top-8 max 48 | few blocks | 48 blocks: 36 send x 32, from block 36 receive x 32, in place, pipelined
2 x 4096 fp8 7168 top-8 max 66 | few blocks | 66 blocks: 39 send x 32, from block 39 receive x 32, in place, pipelined
2 x 4096 fp8 7168 top-8 max 67 | many tokens | 67 blocks: 39 send x 32, from block 39 receive x 128, in place, pipelined, triggers late
2 x 4096 fp8 7168 top-8 by_source | many tokens | 132 blocks: 78 send x 64, from block 78 receive x 128, in place, pipelined, triggers late
2 x 128 fp8 7168 top-8 max 24 by_source | few blocks | 24 blocks: 24 send x 32, from block 0 receive x 128, in place, pipelined, copies rows
2 x 1024 fp8 7168 top-8 max 24 by_source | few blocks | 24 blocks: 24 send x 32, from block 0 receive x 32, in place, pipelined, copies rows
2 x 4096 fp8 7168 top-8 max 24 by_source | few blocks | 24 blocks: 14 send x 32, from block 14 receive x 32, in place, pipelined, copies rows
2 x 4096 fp8 7168 top-8 max 48 by_source | few blocks | 48 blocks: 28 send x 32, from block 28 receive x 32, in place, pipelined, copies rows
4 x 4096 fp8 7168 top-8 max 24 exact | few blocks | 24 blocks: 16 send x 32, from block 16 receive x 32, in place, pipelined, copies rows
2 x 128 fp8 7168 top-8 results of 7392 | some tokens | 132 blocks: 132 send x 256, from block 0 receive x 512
2 x 4096 fp8 7168 top-8 results of 7392 | many tokens | 132 blocks: 76 send x 32, from block 76 receive x 128, in place, pipelined, triggers late
2 x 4096 fp8 7168 top-8 results of 14336 | many tokens | 132 blocks: 78 send x 64, from block 78 receive x 128, in place, pipelined, triggers late
2 x 4096 fp8 7168 top-8 results of 28672 | many tokens | 132 blocks: 78 send x 128, from block 78 receive x 128, in place, pipelined, triggers late
4 x 4096 fp8 7168 top-8 results of 7392 | many tokens | 132 blocks: 76 send x 32, from block 76 receive x 128, in place, triggers late
2 x 4096 fp8 7168 top-8 max 24 results of 7392 | few blocks | 24 blocks: 18 send x 32, from block 18 receive x 32, in place, pipelined
2 x 4096 fp8 7168 top-8 results of 4048 | many tokens | 132 blocks: 88 send x 64, from block 88 receive x 128, in place, pipelined, triggers late
1 x 1 fp8 7168 top-4 | few tokens | 34 blocks: 32 send x 512, from block 32 receive x 1024, in place
1 x 1024 fp8 7168 top-4 | some tokens | 132 blocks: 132 send x 64, from block 0 receive x 128
1 x 8192 fp8 7168 top-4 | one rank | 132 blocks: 87 send x 128, from block 87 receive x 64, in place, pipelined, triggers late
1 x 8192 fp8 7168 top-3 | some tokens | 132 blocks: 132 send x 64, from block 0 receive x 128, triggers late
1 x 8192 fp8 7168 top-4 max 24 | few blocks | 24 blocks: 17 send x 32, from block 17 receive x 32, in place, pipelined
4 x 4096 fp8 7168 top-8 send | some tokens | 132 blocks: 132 send x 128, from block 0 receive x 1024, triggers late
4 x 4096 fp8 7168 top-8 max 24 send | few blocks | 24 blocks: 24 send x 32, from block 24 receive x 32, in place, pipelined
4 x 4096 fp8 7168 top-8 max 24 by_source send | few blocks | 24 blocks: 24 send x 32, from block 0 receive x 32, in place, pipelined, copies rows
4 x 4096 fp8 7168 top-8 receive | some tokens | 132 blocks: 0 send x 512, from block 0 receive x 128, prefetches, triggers late)";

TEST(CudaPolicyTable, CombineOfH200s) { EXPECT_EQ(combine_table(kCombines), kCombineTable); }

// The words of the rare cases.
TEST(CudaPolicyTable, APolicySaysAllThatItDecides) {
  std::ostringstream text;
  text << DispatchPolicy{.blocks = 48,
                         .roles = {.routing_blocks = 2,
                                   .senders = 24,
                                   .routing_blocks_receive = true,
                                   .send_team_threads = 64,
                                   .receive_team_threads = 32,
                                   .receive_teams = 383,
                                   .stores = true,
                                   .counts_apart = true},
                         .pdl = false,
                         .blocks_per_cta = 2}
       << '\n'
       << CombinePolicy{.blocks = 24,
                        .roles = {.senders = 18,
                                  .first_receiver = 18,
                                  .send_team_threads = 32,
                                  .receive_team_threads = 64,
                                  .in_place = true,
                                  .prefetches = true,
                                  .pipelined = true,
                                  .triggers_late = true},
                        .pdl = false};
  EXPECT_EQ(
      text.str(),
      "48 blocks in pairs: 2 route (1 counts), 24 send x 64 by stores, 383 teams receive x 32, routing blocks too, "
      "no pdl\n"
      "24 blocks: 18 send x 32, from block 18 receive x 64, in place, prefetches, pipelined, triggers late, "
      "no pdl");
}

}  // namespace
}  // namespace ferry::cuda
