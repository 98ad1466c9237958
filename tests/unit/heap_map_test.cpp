// HeapMap: regions that neither overlap nor leave the memory, copies by parity, and the size that the design promises.
#include "ferry/detail/layout/heap_map.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "conformance/oracle/routing_patterns.h"

namespace ferry {
namespace {

// Messages of 80 bytes follow each other; those of 2976 begin at lines, where all ranks are direct.
HeapShape heap_shape(const Shape& shape, bool exact, bool has_remote_ranks, std::size_t message = 16 * 5) {
  return {shape, max_local_experts(shape), message, exact, has_remote_ranks, false};
}

struct Piece {
  std::size_t begin;
  std::size_t bytes;
  HeapMap::Region region;
};

// Those of weights that come late, or that go home.
void add_weight_pieces(const HeapMap& map, const HeapShape& h, std::vector<Piece>& pieces) {
  for (int rank = 0; h.has_late_weights && rank < h.shape.ranks; ++rank) {
    for (int copy = 0; copy < 3; ++copy)
      pieces.push_back({map.late_weights(copy, rank), map.late_weights_bytes(), HeapMap::kLateWeights});
    pieces.push_back({map.weighed(rank), 8, HeapMap::kWeighed});
  }
  for (int token = 0; h.returns_weights && token < h.shape.max_tokens; ++token)
    for (int index = 0; index < static_cast<int>(map.results_per_token()); ++index) {
      pieces.push_back({map.returned(token, index), map.returned_bytes(), HeapMap::kReturned});
      pieces.push_back({map.returned_arrived(token, index), 8, HeapMap::kReturnedArrived});
    }
  const std::size_t sent = static_cast<std::size_t>(h.shape.max_tokens * (h.exact ? h.shape.top_k : 1));
  for (int rank = 0; h.returns_weights && h.has_remote_ranks && rank < h.shape.ranks; ++rank)
    for (std::size_t index = 0; index < sent; ++index)
      pieces.push_back({map.sent_returned(rank, index), map.returned_bytes(), HeapMap::kSentReturned});
}

// Every piece of memory that an accessor can name.
std::vector<Piece> all_pieces(const HeapMap& map, const HeapShape& h) {
  std::vector<Piece> pieces;
  const auto top_k = static_cast<std::size_t>(h.shape.top_k);
  for (Epoch e = 5; h.has_input_scales && e < 5 + HeapMap::kScaleCopies; ++e)
    for (int source = 0; source < h.shape.ranks; ++source)
      pieces.push_back({map.input_scale(e, source), 8, HeapMap::kInputScales});
  for (const Epoch e : {Epoch{6}, Epoch{7}}) {
    const bool has_four = h.message_copies == 4;
    for (int source = 0; source < h.shape.ranks; ++source) {
      pieces.push_back({map.counts(e, source), static_cast<std::size_t>(h.max_local) * 4, HeapMap::kCounts});
      pieces.push_back({map.header(e, source), sizeof(RoutingHeader), HeapMap::kHeaders});
      pieces.push_back(
          {map.table(e, source), static_cast<std::size_t>(h.shape.max_tokens) * top_k * 8, HeapMap::kTables});
      if (h.has_token_lists) {
        pieces.push_back({map.token_list(e, source), map.token_list_bytes(), HeapMap::kTokenLists});
        pieces.push_back({map.sent_token_list(e, source), map.token_list_bytes(), HeapMap::kSentTokenLists});
        pieces.push_back(
            {map.given_counts(e, source), static_cast<std::size_t>(h.max_local) * 4, HeapMap::kGivenCounts});
      }
      for (int token = 0; token < h.shape.max_tokens; ++token) {
        for (const Epoch m : has_four ? std::vector{e, e + 2} : std::vector{e}) {
          pieces.push_back({map.message(m, source, token), h.message, HeapMap::kMessages});
          pieces.push_back({map.arrived(m, source, token), 8, HeapMap::kArrived});
        }
      }
    }
    pieces.push_back({map.sent_counts(e), static_cast<std::size_t>(h.shape.experts) * 4, HeapMap::kSentCounts});
    if (h.has_token_lists)
      pieces.push_back(
          {map.sent_given_counts(e), static_cast<std::size_t>(h.shape.experts) * 4, HeapMap::kSentGivenCounts});
    for (int token = 0; h.has_remote_ranks && token < h.shape.max_tokens; ++token)
      pieces.push_back({map.sent_message(e, token), h.message, HeapMap::kSentMessages});
  }
  for (int rank = 0; rank < h.shape.ranks; ++rank) {
    for (int part = 0; part < static_cast<int>(HeapMap::kMostTableParts); ++part)
      pieces.push_back({map.routed(rank, part), 8, HeapMap::kRouted});
    pieces.push_back({map.dispatching(rank), 8, HeapMap::kDispatching});
    pieces.push_back({map.summed(rank), 8, HeapMap::kSummed});
    pieces.push_back({map.combining(rank), 8, HeapMap::kCombining});
    pieces.push_back({map.aborted(rank), 8, HeapMap::kAborted});
    const std::size_t sent = static_cast<std::size_t>(h.shape.max_tokens) * (h.exact ? top_k : 1);
    for (std::size_t index = 0; h.has_remote_ranks && index < sent; ++index)
      pieces.push_back({map.sent_result(rank, index), map.result_bytes(), HeapMap::kSentResults});
  }
  for (int token = 0; token < h.shape.max_tokens; ++token) {
    for (std::size_t index = 0; index < map.results_per_token(); ++index) {
      const int slot = static_cast<int>(index);
      pieces.push_back({map.result(token, slot), map.result_bytes(), HeapMap::kResults});
      pieces.push_back({map.result_arrived(token, slot), 8, HeapMap::kResultArrived});
    }
  }
  add_weight_pieces(map, h, pieces);
  return pieces;
}

TEST(HeapMap, PiecesLieInTheirRegionsAndNeverOverlap) {
  test::Random random(1);
  for (int i = 0; i < 60; ++i) {
    const Shape shape = test::random_shape(random, 6);
    HeapShape h = heap_shape(shape, random.chance(0.5), random.chance(0.5), random.chance(0.5) ? 80 : 2976);
    h.has_token_lists = random.chance(0.5);
    h.has_late_weights = random.chance(0.5);
    h.returns_weights = random.chance(0.5);
    h.has_input_scales = random.chance(0.5);
    h.message_copies = random.chance(0.5) ? 2 : 4;
    const HeapMap map(h);
    std::vector<Piece> pieces = all_pieces(map, h);
    std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) { return a.begin < b.begin; });
    std::size_t end = 0;
    for (const Piece& piece : pieces) {
      ASSERT_GE(piece.begin, end) << to_string(h.shape);
      end = piece.begin + piece.bytes;
      ASSERT_GE(piece.begin, map.begin(piece.region));
      ASSERT_LE(end, map.begin(piece.region) + map.region_bytes(piece.region));
    }
    EXPECT_LE(end, map.total());
  }
}

TEST(HeapMap, RegionsAndMessagesAreAligned) {
  const HeapMap map(heap_shape({.ranks = 3, .experts = 7, .top_k = 3, .max_tokens = 17, .hidden = 160}, false, true));
  for (int region = 0; region < HeapMap::kRegions; ++region)
    EXPECT_EQ(map.begin(static_cast<HeapMap::Region>(region)) % HeapMap::kAlignment, 0u);
  EXPECT_EQ(map.message(3, 2, 5) % 16, 0u);
  EXPECT_EQ(map.arrived(3, 2, 5) % alignof(SignalWord), 0u);
}

TEST(HeapMap, EpochsTwoApartShareTheirMemoryAndNeighboursDoNot) {
  const HeapMap map(heap_shape({.ranks = 2, .experts = 4, .top_k = 2, .max_tokens = 3, .hidden = 32}, false, true));
  EXPECT_EQ(map.message(4, 1, 2), map.message(6, 1, 2));
  EXPECT_NE(map.message(4, 1, 2), map.message(5, 1, 2));
  EXPECT_EQ(map.sent_message(4, 2), map.sent_message(6, 2));
  EXPECT_NE(map.sent_message(4, 2), map.sent_message(5, 2));
}

TEST(HeapMap, MessagesFourApartShareFourCopies) {
  HeapShape h = heap_shape({.ranks = 2, .experts = 4, .top_k = 2, .max_tokens = 3, .hidden = 32}, false, true);
  h.message_copies = 4;
  const HeapMap map(h);
  EXPECT_EQ(map.message(4, 1, 2), map.message(8, 1, 2));
  EXPECT_EQ(map.message((Epoch{1} << 32) + 3, 1, 2), map.message(7, 1, 2));
  EXPECT_EQ(map.message_slot(7, 1, 2), 3u * 2 * 3 + 3 + 2);
  EXPECT_EQ(map.table(4, 1), map.table(6, 1));  // of routings there are two
  EXPECT_EQ(map.send_buffer_of(map.message(7, 1, 2), 0), map.sent_message(7, 2));
  EXPECT_EQ(map.send_buffer_of(map.message(6, 1, 2), 0), map.sent_message(6, 2));
}

// 2*R*T*(message + 8*K) + min(R,K)*T*2*hidden, or K*T*2*hidden; remote ranks: + 2*T*message + R*T*2*hidden, or *K;
// words and counts R*(16*T + 16*L + 400) + 8*T*min(R,K). To within 5 percent.
TEST(HeapMap, TotalIsWhatTheDesignPromises) {
  for (const Shape& shape : {Shape{8, 256, 8, 128, 7168}, Shape{4, 64, 8, 512, 2880}, Shape{2, 8, 4, 64, 4096}}) {
    for (const bool exact : {false, true}) {
      for (const bool has_remote_ranks : {false, true}) {
        const HeapShape h{shape, max_local_experts(shape), static_cast<std::size_t>(shape.hidden),
                          exact, has_remote_ranks,         false};
        const double r = shape.ranks, t = shape.max_tokens, k = shape.top_k, row = 2.0 * shape.hidden;
        const double message = static_cast<double>(h.message), results = exact ? k : std::min(r, k);
        double promised = 2 * r * t * (message + 8 * k) + results * t * row;
        promised += r * (16 * t + 16.0 * h.max_local + 400) + 8 * t * results;
        if (has_remote_ranks) promised += 2 * t * message + r * t * row * (exact ? k : 1);
        EXPECT_NEAR(static_cast<double>(HeapMap(h).total()) / promised, 1.0, 0.05) << to_string(shape);
      }
    }
  }
}

// Exchanges without rows by_source have the memory that they had without that order.
TEST(HeapMap, TokenListsTakeMemoryOnlyWhereTheyAreSent) {
  HeapShape h = heap_shape({.ranks = 4, .experts = 16, .top_k = 3, .max_tokens = 70, .hidden = 64}, false, false);
  const HeapMap without(h);
  EXPECT_EQ(without.region_bytes(HeapMap::kTokenLists) + without.region_bytes(HeapMap::kSentTokenLists), 0u);
  h.has_token_lists = true;
  const HeapMap with(h);
  EXPECT_EQ(with.token_list_bytes(), 8u * (1 + 3)) << "70 tokens: a word for how many, and one for each 32 tokens";
  EXPECT_EQ(with.total() - without.total(), 2u * (2 * 4 * 32) + 2u * 128) << "and given counts, a line and a line";
  EXPECT_EQ(with.begin(HeapMap::kSentResults), without.begin(HeapMap::kSentResults));
}

// A message's slot begins at a line of memory where that takes little, and where no put takes several messages along.
TEST(HeapMap, MessagesBeginAtLinesWhereThatTakesLittle) {
  const auto slot = [](std::size_t message, bool has_remote_ranks) {
    return HeapMap({{.ranks = 4, .experts = 64, .top_k = 8, .max_tokens = 16, .hidden = 7168},
                    16,
                    message,
                    false,
                    has_remote_ranks,
                    false})
        .message_slot_bytes();
  };
  EXPECT_EQ(slot(7392, false), 7424u);
  EXPECT_EQ(slot(7392, true), 7392u) << "neighbours leave in one put";
  EXPECT_EQ(slot(4032, false), 4096u);
  EXPECT_EQ(slot(14336, false), 14336u);
  EXPECT_EQ(slot(576, false), 576u) << "a ninth more memory";
  const HeapMap map(
      {{.ranks = 4, .experts = 64, .top_k = 8, .max_tokens = 16, .hidden = 7168}, 16, 7392, false, false, false});
  for (const Epoch e : {Epoch{6}, Epoch{7}})
    for (int token = 0; token < 16; ++token) EXPECT_EQ(map.message(e, 3, token) % HeapMap::kAlignment, 0u);
}

// So does a result's.
TEST(HeapMap, ResultsBeginAtLinesWhereThatTakesLittle) {
  const auto map = [](std::size_t result, bool has_remote_ranks) {
    HeapShape h{{.ranks = 4, .experts = 64, .top_k = 8, .max_tokens = 16, .hidden = 7168},
                16,
                7392,
                false,
                has_remote_ranks,
                false};
    h.result = result;
    return HeapMap(h);
  };
  EXPECT_EQ(map(7392, false).result_slot_bytes(), 7424u);
  EXPECT_EQ(map(7392, false).result_bytes(), 7392u);
  EXPECT_EQ(map(7392, true).result_slot_bytes(), 7392u) << "neighbours leave in one put";
  EXPECT_EQ(map(4048, false).result_slot_bytes(), 4096u);
  EXPECT_EQ(map(0, false).result_slot_bytes(), 14336u);
  EXPECT_EQ(map(576, false).result_slot_bytes(), 576u) << "a ninth more memory";
  const HeapMap with_lines = map(4048, false);
  for (int token = 0; token < 16; ++token)
    for (int index = 0; index < 4; ++index) EXPECT_EQ(with_lines.result(token, index) % HeapMap::kAlignment, 0u);
}

// Indices have 32 bits; offsets have 64.
TEST(HeapMap, OffsetsGoOnPastFourGigabytes) {
  const HeapMap map(
      heap_shape({.ranks = 64, .experts = 256, .top_k = 8, .max_tokens = 65536, .hidden = 7168}, false, false, 7392));
  const std::size_t slots = 64 * 65536;
  EXPECT_EQ(map.message(7, 63, 65535) - map.message(6, 0, 0), (2 * slots - 1) * map.message_slot_bytes());
  EXPECT_GT(map.message(7, 63, 65535), std::size_t{1} << 35);
  EXPECT_EQ(map.table(7, 63) - map.table(6, 0), (2 * slots - 65536) * 8 * sizeof(RoutingEntry));
  EXPECT_EQ(map.arrived(7, 63, 65535) - map.arrived(6, 0, 0), (2 * slots - 1) * sizeof(SignalWord));
  EXPECT_EQ(map.result(65535, 7) - map.result(0, 0), (65536u * 8 - 1) * map.result_slot_bytes());
  const std::size_t most = (1u << 20) - 1;  // tokens of 2048 ranks: the last slots lie past 2^31
  const HeapMap largest(heap_shape({2048, 2048, 1, static_cast<int>(most), 32}, false, false, 80));
  EXPECT_EQ(largest.message(7, 2047, static_cast<int>(most) - 1) - largest.message(6, 0, 0),
            (2 * 2048 * most - 1) * largest.message_slot_bytes());
  EXPECT_EQ(largest.arrived(7, 0, 5) - largest.arrived(6, 0, 0), (2048 * most + 5) * sizeof(SignalWord));
}

// I9: a token may name the slot of any other, by an index that leads there.
TEST(HeapMap, GivesEveryTokenAnIndexOfEverySlot) {
  for (const bool exact : {false, true}) {
    const HeapMap map(heap_shape({.ranks = 2, .experts = 6, .top_k = 3, .max_tokens = 5, .hidden = 64}, exact, true));
    const int per_token = static_cast<int>(map.results_per_token());
    for (int token = 0; token < 5; ++token) {
      for (int slot = 0; slot < 5 * per_token; ++slot) {
        const int index = map.index_of_slot(static_cast<std::uint32_t>(slot), token);
        EXPECT_EQ(map.result(token, index), map.result(slot / per_token, slot % per_token));
        EXPECT_EQ(map.result_arrived(token, index), map.result_arrived(slot / per_token, slot % per_token));
      }
    }
  }
}

// What a fabric asks that has a slot of a peer in hand, and puts what goes there from a send buffer.
TEST(HeapMap, FindsTheSendBufferOfEverySlot) {
  for (const bool exact : {false, true}) {
    for (const Shape& shape : {Shape{4, 12, 3, 5, 64}, Shape{3, 7, 5, 6, 32}, Shape{2, 4, 1, 9, 96}}) {
      const HeapMap map(heap_shape(shape, exact, true));
      for (int peer = 0; peer < shape.ranks; ++peer) {
        for (int token = 0; token < shape.max_tokens; ++token) {
          for (const Epoch e : {Epoch{6}, Epoch{7}})
            for (int source = 0; source < shape.ranks; ++source)
              EXPECT_EQ(map.send_buffer_of(map.message(e, source, token), peer), map.sent_message(e, token));
          for (int index = 0; index < static_cast<int>(map.results_per_token()); ++index)
            EXPECT_EQ(map.send_buffer_of(map.result(token, index), peer),
                      map.sent_result(peer, static_cast<std::size_t>(exact ? token * shape.top_k + index : token)));
        }
      }
    }
  }
}

}  // namespace
}  // namespace ferry
