// The steps that all backends run, by a group of threads in place of one: what a thread writes and others read must
// have a barrier between. On GPUs a warp or a team runs the same text.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "cpu/steps/combine_receive.h"
#include "cpu/steps/lookup/serial_lookup.h"
#include "cpu/steps/row_starts.h"
#include "ferry/detail/formats/format_list.h"
#include "ferry/detail/protocol/dispatch_receive.h"
#include "ferry/detail/protocol/row_metadata.h"
#include "support/lockstep_group.h"
#include "support/one_rank.h"

namespace ferry::test {
namespace {

constexpr int kThreads = 8;
using Group = LockstepGroup<kThreads>;

// One rank's memory as a fabric of a group: everything is there, so nobody waits.
class GroupMemory {
 public:
  using Group = test::Group;
  using Hooks = PointerHooks;
  explicit GroupMemory(LocalMemory& memory) : memory_(memory) {}
  static PointerHooks hooks() { return {}; }
  std::byte* local(std::size_t offset) const { return memory_.local(offset); }
  static std::byte* staging(const Group&, std::byte* room) { return room; }
  static void put_then_signal_each(const Group&, const Destinations&, const SignalledPut&) {}
  static void finish_puts(const Group&) {}
  static bool wait_at_least(const Group&, std::size_t, Epoch, const WaitSite&) { return true; }
  template <class WordOf, class SiteOf>
  static bool wait_for_each(const Group&, int, const WordOf&, Epoch, const SiteOf&, const std::uint8_t*) {
    return true;
  }
  static bool await_entries(const Group&, const Plan&, Epoch, Epoch, const TokenAt&, int) { return true; }

 private:
  LocalMemory& memory_;
};
static_assert(Fabric<GroupMemory>);

constexpr int kHidden = 64;
const Shape kShape{.ranks = 1, .experts = 3, .top_k = 2, .max_tokens = 5, .hidden = kHidden};

// A rank alone whose messages, results and routing are there.
struct Arrived {
  Arrived() : rank(kShape, 0) {
    rank.route_ids({0, 2, 1, 0, -1, 2, 2, 1, 0, -1});
    rank.plan.alignment = 4;
    const RoutingHeader header{static_cast<std::uint32_t>(kShape.max_tokens), 1.0f};
    std::memcpy(rank.memory.local(rank.plan.map.header(kFirstEpoch, 0)), &header, sizeof header);
    std::memcpy(rank.memory.local(rank.plan.map.counts(kFirstEpoch, 0)),
                rank.memory.local(rank.plan.map.sent_counts(kFirstEpoch)), 3 * sizeof(std::uint32_t));
    for (int token = 0; token < kShape.max_tokens; ++token) {
      std::byte* message = rank.memory.local(rank.plan.map.message(kFirstEpoch, 0, token));
      auto* result = reinterpret_cast<std::uint16_t*>(rank.memory.local(rank.plan.map.result(token, 0)));
      for (std::size_t i = 0; i < rank.plan.map.message_bytes(); ++i)
        message[i] = static_cast<std::byte>(token * 31 + static_cast<int>(i));
      for (int c = 0; c < kHidden; ++c) result[c] = float_to_bf16(static_cast<float>(token * 100 + c));
    }
    words.resize(static_cast<std::size_t>(row_start_words(rank.plan)));
    const RowStartsToFill to = row_starts_at(rank.plan, words.data());
    cpu::find_row_starts(rank.plan, rank.memory, kFirstEpoch, {}, to);
    starts = to;
  }
  Rank rank;
  std::vector<std::uint32_t> words;
  RowStarts starts;
};

struct Outcome {
  explicit Outcome(std::size_t rows)
      : payload(rows * 16, std::byte{0xA5}), offsets(4), experts(3), src_info(2 * rows, -7), sums(5 * kHidden * 2) {}
  RowsOut out() {
    RowsOut out;
    out.payload = payload.data();
    out.row_bytes = 16;
    out.row_offsets = offsets.data();
    out.expert_ids = experts.data();
    out.src_info = src_info.data();
    return out;
  }
  friend bool operator==(const Outcome&, const Outcome&) = default;
  std::vector<std::byte> payload;
  std::vector<std::uint32_t> offsets;
  std::vector<std::int32_t> experts, src_info;
  std::vector<std::byte> sums;
};

template <class S>
void run_steps(const S& step, const Arrived& arrived, Outcome& outcome, TokenScratch& scratch) {
  const RowsOut out = outcome.out();
  write_row_metadata(step.plan, step.group, step.ops, FixedShare{0, 1}, arrived.starts, out);
  step.group.sync();
  lay_out_rows<false>(step, FixedShare{0, 1}, RowPlaces{arrived.starts}, out, NoLog{}, scratch);
  CombineOut sums;
  sums.tokens = outcome.sums.data();
  sums.token_bytes = kHidden * 2;
  cpu::receive_results(step, kShape.max_tokens, FixedShare{0, 1}, arrived.starts, CombineArgs{}, sums, scratch);
}

TEST(LockstepSteps, GiveTheBytesOfOneThread) {
  Arrived arrived;
  const std::size_t rows = arrived.starts.group[3];
  const SerialGroup alone;
  TokenScratch scratch;
  Outcome expected(rows);
  const PortableOps ops{};
  run_steps(Step{arrived.rank.plan, arrived.rank.memory, alone, kFirstEpoch, kFirstEpoch, cpu::SerialLookup{}, ops},
            arrived, expected, scratch);
  EXPECT_EQ(std::count(expected.src_info.begin(), expected.src_info.end(), -7), 0);
  for (int trial = 0; trial < 5; ++trial) {
    Outcome outcome(rows);
    GroupMemory memory(arrived.rank.memory);
    run_lockstep<kThreads>(kThreads, [&](const Group& group) {
      const Step step{arrived.rank.plan, memory, group, kFirstEpoch, kFirstEpoch, cpu::SerialLookup{}, ops};
      run_steps(step, arrived, outcome, scratch);
    });
    EXPECT_TRUE(outcome == expected) << "trial " << trial;
  }
}

}  // namespace
}  // namespace ferry::test
