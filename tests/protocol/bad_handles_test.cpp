// Handles that are none of the call's exchange, or that are damaged: refused by the field before anything moves.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <functional>

#include "exchange/sizes/plan.h"
#include "exchange/sizes/sizes.h"
#include "ferry/detail/protocol/contracts/handle.h"
#include "ferry/detail/protocol/contracts/short_handle.h"
#include "ferry/rows/host_rows.h"
#include "support/fake_world.h"
#include "support/kept_handle.h"

namespace ferry::test {
namespace {

using conformance::HandleMemory;
using conformance::RankRound;
using conformance::Scenario;
using conformance::ScenarioSettings;

// I17: a handle that is none is refused before anything moves, by the field.
void refuse_field_by_field(const Scenario& scenario) {
  run_fake_ranks(FakeKind::direct, kShape.ranks, 10, [&](FakeWorld& world) {
    Exchange exchange(world, kShape, scenario.settings.options);
    Kept kept(exchange, scenario);
    const auto expect_refused = [&](const std::function<void(HandleHeader&)>& spoil, const char* field) {
      HandleMemory bad = kept.handle;
      HandleHeader header;
      std::memcpy(&header, bad.bytes().data(), sizeof header);
      spoil(header);
      std::memcpy(bad.bytes().data(), &header, sizeof header);
      for (const std::string& text :
           {refusal([&] { exchange.dispatch(input_with(kept.round, bad), kept.round.out); }),
            refusal([&] { exchange.combine(combine_input_with(kept.round, bad), kept.round.combine_out); })})
        EXPECT_NE(text.find(field), std::string::npos) << text;
    };
    expect_refused([](HandleHeader& h) { h.magic ^= 1; }, "first word");
    expect_refused([](HandleHeader& h) { h.ranks += 1; }, "ranks is 4");
    expect_refused([](HandleHeader& h) { h.rank += 1; }, "rank is");
    expect_refused([](HandleHeader& h) { h.experts -= 1; }, "experts is 5");
    expect_refused([](HandleHeader& h) { h.top_k += 1; }, "top_k is 4");
    expect_refused([](HandleHeader& h) { h.max_tokens += 1; }, "max_tokens is 6");
    expect_refused([](HandleHeader& h) { h.skips_a2a = 1; }, "skip_a2a");
    expect_refused([](HandleHeader& h) { h.shared_groups = 1; }, "fused_shared_expert");
    expect_refused([](HandleHeader& h) { h.order = 1; }, "order of rows");
    expect_refused([](HandleHeader& h) { h.alignment = 3; }, "alignment is 3");
    expect_refused([](HandleHeader& h) { h.num_tokens += 7; }, "tokens");
    expect_refused([](HandleHeader& h) { h.num_rows += 1; }, "number of rows");
    expect_refused([](HandleHeader& h) { h.shared_end = h.num_tokens + 1; }, "shared token");
    if (scenario.settings.options.short_handles) {
      expect_refused([](HandleHeader& h) { h.magic = kHandleMagic; }, "it is a whole one");
      expect_refused([](HandleHeader& h) { h.short_messages += 100; }, "messages with");
      expect_refused([](HandleHeader& h) { h.short_messages = 0xFFFFFFFFu; }, "4294967295 messages with");
      expect_refused([](HandleHeader& h) { h.short_rows = 0xFFFFFFFFu; }, "4294967295 rows");
      expect_refused([](HandleHeader& h) { h.short_rows -= 1; }, "message");
      expect_refused([](HandleHeader& h) { h.short_messages -= 1; }, "message");
    }
    // Refused calls moved nothing: the round goes on.
    exchange.combine(kept.round.combine_in, kept.round.combine_out);
    kept.round.check_tokens();
  });
}
TEST(BadHandles, AreRefusedFieldByField) {
  Scenario scenario = scenario_of(5, "ragged");
  refuse_field_by_field(scenario);
  scenario.settings.options.short_handles = true;
  refuse_field_by_field(conformance::make_scenario(scenario.settings));
}

// A rank that its own handle's mask has would wait for its own results.
TEST(BadHandles, OfAMaskThatHasTheRankItselfAreRefused) {
  const Scenario scenario = scenario_of(5);
  run_fake_ranks(FakeKind::direct, kShape.ranks, 10, [&](FakeWorld& world) {
    Exchange exchange(world, kShape, scenario.settings.options);
    Kept kept(exchange, scenario);
    HandleMemory bad = kept.handle;
    bad.bytes()[sizeof(HandleHeader) + static_cast<std::size_t>(world.rank())] = std::byte{1};
    const std::string text =
        refusal([&] { exchange.combine(combine_input_with(kept.round, bad), kept.round.combine_out); });
    EXPECT_NE(text.find("its mask has this rank"), std::string::npos) << text;
  });
}

// One rank alone sees its own handle only. Its scales are in tiles.
Scenario tiled_alone(std::uint64_t seed, bool is_short = false) {
  ScenarioSettings alone =
      settings_of({.ranks = 1, .experts = 6, .top_k = 3, .max_tokens = 5, .hidden = 64}, "mxfp8", Reduction::by_rank);
  alone.options.tiled_scales = true;
  alone.options.deadline = std::chrono::milliseconds(5);
  alone.options.short_handles = is_short;
  alone.seed = seed;
  return make_scenario(alone);
}

// The row starts of a handle that rank 0 left.
struct StartsOf {
  StartsOf(const Exchange& exchange, HandleMemory& handle)
      : plan(make_plan(exchange.shape(), exchange.options(),
                       make_heap_map(exchange.shape(), exchange.options(), 0, false), 0)),
        starts(kept_routing_at(plan, handle.bytes().data()).starts) {}
  Plan plan;
  RowStartsToFill starts;
};

// I18: rows and tiles of scales are addressed by the row starts.
TEST(BadHandles, WithOtherRowStartsAreRefused) {
  const Scenario scenario = tiled_alone(6);
  run_fake_ranks(FakeKind::direct, 1, 11, [&](FakeWorld& world) {
    Exchange exchange(world, scenario.settings.shape, scenario.settings.options);
    Kept kept(exchange, scenario);
    const auto expect_refused = [&](const std::function<void(RowStartsToFill)>& spoil, const char* field) {
      HandleMemory bad = kept.handle;
      spoil(StartsOf(exchange, bad).starts);
      for (const std::string& text :
           {refusal([&] { exchange.dispatch(input_with(kept.round, bad), kept.round.out); }),
            refusal([&] { exchange.combine(combine_input_with(kept.round, bad), kept.round.combine_out); })})
        EXPECT_NE(text.find(field), std::string::npos) << text;
    };
    for (int group = 0; group < 6; ++group) {
      expect_refused([&](RowStartsToFill s) { s.tiles[group] += 1; }, "scales_offsets of group");
      expect_refused([&](RowStartsToFill s) { s.tiles[group] -= 1; }, "scales_offsets of group");
      expect_refused([&](RowStartsToFill s) { s.group[group] += 4; }, "row_offsets of group");
      expect_refused([&](RowStartsToFill s) { s.group[group] += 1; }, "row_offsets of group");
      expect_refused([&](RowStartsToFill s) { s.filled[group] = 0x80000000u; }, "number of rows of group");
      expect_refused([&](RowStartsToFill s) { s.filled[group] += 128; }, " is ");
      expect_refused([&](RowStartsToFill s) { s.of_source[group] = s.filled[group] + 1; }, "the first row of source 0");
    }
    expect_refused([](RowStartsToFill s) { s.group[6] += 4; }, "row_offsets[groups] is");
    expect_refused([](RowStartsToFill s) { s.tokens[0] += 1; }, "the number of tokens of rank 0 is 6");
    expect_refused([](RowStartsToFill s) { s.tokens[0] -= 1; }, "most tokens of a source is");
  });
}

// Some bytes behind the header are random.
HandleMemory damaged(const HandleMemory& handle, Random& random) {
  HandleMemory bad = handle;
  const std::size_t from =
      sizeof(HandleHeader) + static_cast<std::size_t>(random.below(static_cast<int>(bad.bytes().size() - 160)));
  for (std::size_t i = from; i < bad.bytes().size() && i < from + 16; ++i)
    bad.bytes()[i] = static_cast<std::byte>(random.below(256));
  return bad;
}

// I18: whatever stands behind a good header, nothing is read or written beyond its bounds (AddressSanitizer).
void combine_with_damaged(const Scenario& scenario) {
  run_fake_ranks(FakeKind::direct, 1, 11, [&](FakeWorld& world) {
    Exchange exchange(world, scenario.settings.shape, scenario.settings.options);
    Kept kept(exchange, scenario);
    Random random(12);
    int refused = 0;
    for (int trial = 0; trial < 300; ++trial) {
      HandleMemory bad = damaged(kept.handle, random);
      refused += refusal([&] { exchange.combine(combine_input_with(kept.round, bad), kept.round.combine_out); }).empty()
                     ? 0
                     : 1;
    }
    EXPECT_GT(refused, 50);
    exchange.combine(combine_input_with(kept.round, kept.handle), kept.round.combine_out);
    kept.round.check_tokens();
  });
}
TEST(BadHandles, WithABodyOfRandomBytesAreRefusedOrHarmless) {
  for (const bool is_short : {false, true}) combine_with_damaged(tiled_alone(6, is_short));
}

// The same of a replay, which writes rows and tiles. It ends the exchange where it waits for a message that the handle
// sends to no one.
void replay_damaged(const Scenario& scenario) {
  run_fake_ranks(FakeKind::direct, 1, 11, [&](FakeWorld& world) {
    const ExchangeOptions& options = scenario.settings.options;
    Exchange first(world, scenario.settings.shape, options);
    Kept kept(first, scenario);
    Random random(13);
    int refused = 0;
    for (int trial = 0; trial < 300; ++trial) {
      HandleMemory bad = damaged(kept.handle, random);
      Exchange exchange(world, scenario.settings.shape, options);
      RankRound round(scenario, 0);
      try {
        exchange.dispatch(input_with(round, bad), round.out);
      } catch (const PeerMissing&) {
        // It waited for the message.
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::invalid_argument) << error.what();
        ++refused;
      }
    }
    EXPECT_GT(refused, 50);
  });
}
TEST(BadHandles, WithABodyOfRandomBytesAreRefusedOrHarmlessInReplays) {
  for (const bool is_short : {false, true}) replay_damaged(tiled_alone(6, is_short));
}

// What its messages say is compared with what came.
TEST(BadHandles, OfShortMessagesAreRefused) {
  const Scenario scenario = tiled_alone(6, true);
  run_fake_ranks(FakeKind::direct, 1, 11, [&](FakeWorld& world) {
    Exchange exchange(world, scenario.settings.shape, scenario.settings.options);
    Kept kept(exchange, scenario);
    const Plan plan = StartsOf(exchange, kept.handle).plan;
    const auto expect_refused = [&](const std::function<void(ShortHandle&)>& spoil, const char* field) {
      HandleMemory bad = kept.handle;
      HandleHeader header;
      std::memcpy(&header, bad.bytes().data(), sizeof header);
      ShortHandle at = short_handle_at(plan, bad.bytes().data(), kept_by(plan, header));
      spoil(at);
      for (const std::string& text :
           {refusal([&] { exchange.dispatch(input_with(kept.round, bad), kept.round.out); }),
            refusal([&] { exchange.combine(combine_input_with(kept.round, bad), kept.round.combine_out); })})
        EXPECT_NE(text.find(field), std::string::npos) << text;
    };
    expect_refused([](ShortHandle& h) { h.messages[1].place = 0xFFFFFFFFu; }, "did not come");
    expect_refused([](ShortHandle& h) { h.messages[1].place |= 5u << ShortMessage::kSlotBits; }, "did not come");
    expect_refused([](ShortHandle& h) { h.messages[1].has_row = 0; }, "message 1 says 0x0");
    expect_refused([](ShortHandle& h) { h.messages[1].has_row |= 1u << 5; }, "message 1 says");
    expect_refused([](ShortHandle& h) { h.first_rows[0] = 1; }, "the first row of message 0 is 1; it must be 0");
    expect_refused([](ShortHandle& h) { h.rows[0].row = 0x7FFFFFFFu; }, "the row of token");
    expect_refused([](ShortHandle& h) { h.messages[0].place |= 31; }, "the result slot of token");
    expect_refused([](ShortHandle& h) { h.starts.tokens[0] = 0x80000000u; }, "tokens");
    expect_refused([](ShortHandle& h) { h.own[0].code |= 0x7u; }, "expert of token");
    exchange.combine(combine_input_with(kept.round, kept.handle), kept.round.combine_out);
    kept.round.check_tokens();
  });
}

TEST(Replays, RefuseIdsWeightsAndOtherNumbersOfTokens) {
  const Scenario scenario = scenario_of(7);
  run_fake_ranks(FakeKind::direct, kShape.ranks, 13, [&](FakeWorld& world) {
    Exchange exchange(world, kShape, scenario.settings.options);
    Kept kept(exchange, scenario);
    const auto expect_refused = [&](const std::function<void(DispatchInput&)>& spoil, const char* part) {
      DispatchInput in = input_with(kept.round, kept.handle);
      spoil(in);
      const std::string text = refusal([&] { exchange.dispatch(in, kept.round.out); });
      EXPECT_NE(text.find(part), std::string::npos) << text;
    };
    expect_refused([&](DispatchInput& in) { in.topk_ids = kept.round.in.topk_ids; }, "leave topk_ids out");
    expect_refused([&](DispatchInput& in) { in.topk_weights = kept.round.in.topk_weights; }, "late_weights");
    expect_refused([](DispatchInput& in) { in.tokens.shape[0] -= 1; }, "the handle's dispatch had 5 tokens");
    expect_refused([](DispatchInput& in) { in.handle.shape[0] -= 16; }, "RowLayout::handle_bytes");
    expect_refused([](DispatchInput& in) { in.handle.dtype = DType::i32; }, "u8");
    expect_refused([](DispatchInput& in) { in.handle.data = static_cast<const std::byte*>(in.handle.data) + 8; },
                   "multiple of 16");
    exchange.dispatch(input_with(kept.round, kept.handle), kept.round.out);
    EXPECT_THROW(exchange.combine(kept.round.combine_in, kept.round.combine_out), Error);  // it needs the handle
  });
}

// The handle is good, so another one would not help: the refusal says what to change in the call or the exchange.
TEST(Replays, ThatDoNotFitTheirHandleAreToldWhatToChange) {
  const Scenario scenario = scenario_of(7);
  run_fake_ranks(FakeKind::direct, kShape.ranks, 13, [&](FakeWorld& world) {
    Exchange exchange(world, kShape, scenario.settings.options);
    Kept kept(exchange, scenario);
    const auto expect_refused = [&](Exchange& by, const DispatchInput& in, const DispatchOutput& out,
                                    const char* advice) {
      const std::string text = refusal([&] { by.dispatch(in, out); });
      EXPECT_NE(text.find(advice), std::string::npos) << text;
      EXPECT_EQ(text.find("Give a handle"), std::string::npos) << text;
    };
    const DispatchInput in = input_with(kept.round, kept.handle);
    DispatchInput padded = in;
    padded.row_order = RowOrder::padded;
    DispatchOutput rows = kept.round.out;
    rows.counts = rows.expert_ids;
    expect_refused(exchange, padded, rows, "row_order is padded. Say by_expert");
    DispatchOutput few;
    few.payload = kept.round.out.payload;
    few.payload.shape[0] = 1;
    expect_refused(exchange, in, few, "payload holds 1. Give outputs of ");
    ExchangeOptions other = scenario.settings.options;
    other.expert_alignment = 128;
    other.row_orders = {RowOrder::by_expert};
    Exchange aligned(world, kShape, other);
    HostRows wide(aligned);
    expect_refused(aligned, in, wide.arrivals(), "expert_alignment 4, or less");
    // No outputs would do, so the half that sends refuses it, too. Then nothing has moved.
    const std::string text = refusal([&] { aligned.dispatch_async(in); });
    EXPECT_NE(text.find("expert_alignment 4, or less"), std::string::npos) << text;
    aligned.dispatch(kept.round.in, wide.arrivals());
    other.row_orders = {RowOrder::padded};
    Exchange padded_only(world, kShape, other);
    expect_refused(padded_only, padded, rows, "Make it with by_expert in row_orders");
  });
}

}  // namespace
}  // namespace ferry::test
