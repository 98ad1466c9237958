// What the demo is made of: repeated passes, words, round numbers, texts of a picture, and counts of messages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tool/demo/model/demo_model.h"
#include "tool/demo/model/demo_words.h"
#include "tool/demo/picture/svg.h"
#include "tool/demo/picture/traffic.h"

namespace ferry::app {
namespace {

std::string sentences(int count) {
  std::string text;
  for (int i = 0; i < count; ++i)
    text += "A ferry carries cars and people over river number " + std::to_string(i) + ". ";
  return text;
}

// Passes after the first use the experts' results of the first, so nothing but the times may change.
TEST(RepeatedPasses, ChangeNeitherTheOutputNorTheCounts) {
  const DemoModel model(DemoWords(sentences(60)).words);
  const Layer& layer = model.layer();
  const Ranks ranks = choose_backend("cpu").make(3);
  const std::size_t size = static_cast<std::size_t>(layer.tokens) * DemoModel::kHidden;
  std::vector<float> once(size), repeated(size);
  const LayerOptions options{.ranks = 3, .format = format_named("mxfp4")};
  LayerOptions with_repeats = options;
  with_repeats.repeats = 4;
  const LayerReport first = run_layer(ranks, layer, options, once.data());
  const LayerReport again = run_layer(ranks, layer, with_repeats, repeated.data());
  EXPECT_EQ(once, repeated);
  EXPECT_EQ(first.messages_between, again.messages_between);
  EXPECT_EQ(first.messages, again.messages);
  EXPECT_EQ(first.wire_bytes, again.wire_bytes);
  EXPECT_EQ(first.dispatch_bytes, again.dispatch_bytes);
  EXPECT_EQ(first.rows, again.rows);
  EXPECT_GT(again.dispatch_seconds, 0);
  EXPECT_GT(again.combine_seconds, 0);
}

// Counted from the routing alone.
TEST(MessagesBetween, AreTheRanksThatTokensName) {
  const DemoModel model(DemoWords(sentences(20)).words, 7);
  const Layer& layer = model.layer();
  constexpr int kRanks = 5;
  std::vector<std::uint64_t> expected(kRanks * kRanks);
  for (std::int64_t token = 0; token < layer.tokens; ++token) {
    int source = 0;
    while (token >=
           tokens_of_rank(layer.tokens, kRanks, source).begin + tokens_of_rank(layer.tokens, kRanks, source).count)
      ++source;
    std::vector<bool> named(kRanks);
    for (int k = 0; k < layer.top_k; ++k)  // 32 experts: ranks 0 and 1 have 7, the others 6
      named[static_cast<std::size_t>(layer.id(token, k) < 14 ? layer.id(token, k) / 7
                                                             : 2 + (layer.id(token, k) - 14) / 6)] = true;
    for (std::size_t rank = 0; rank < kRanks; ++rank)
      expected[static_cast<std::size_t>(source) * kRanks + rank] += named[rank] ? 1 : 0;
  }
  std::vector<float> output(static_cast<std::size_t>(layer.tokens) * DemoModel::kHidden);
  const LayerReport report = run_layer(choose_backend("cpu").make(kRanks), layer, {.ranks = kRanks}, output.data());
  EXPECT_EQ(report.messages_between, expected);
  const ChoiceTraffic traffic{kRanks, layer.tokens * layer.top_k, report.messages_between, "bf16",
                              report.message_bytes};
  EXPECT_EQ(traffic.between(), report.messages);
}

TEST(DemoWords, AreCutFromTheBeginning) {
  const DemoWords few(sentences(10));
  EXPECT_FALSE(few.is_cut());
  EXPECT_EQ(few.in_text, few.words.size());
  EXPECT_EQ(few.in_text, 110u);
  const DemoWords many(sentences(3000));
  EXPECT_TRUE(many.is_cut());
  EXPECT_EQ(many.in_text, 33000u);
  EXPECT_EQ(many.words.size(), kMostWords);
  EXPECT_EQ(many.words[1], "ferry");
}

TEST(RoundNumber, IsTheNextOfItsKind) {
  EXPECT_EQ(round_number(0.2), 1);
  EXPECT_EQ(round_number(1), 1);
  EXPECT_EQ(round_number(1.5), 2);
  EXPECT_EQ(round_number(2.5), 5);
  EXPECT_EQ(round_number(5.5), 10);
  EXPECT_EQ(round_number(287), 500);
  EXPECT_EQ(round_number(49.7, {1, 2, 3, 4, 5, 6, 8}), 50);
  EXPECT_EQ(round_number(82, {1, 2, 3, 4, 5, 6, 8}), 100);
}

TEST(SvgText, HoldsAnyBytes) {
  EXPECT_THAT(svg_text(0, 0, "<a> & b"), testing::HasSubstr(">&lt;a&gt; &amp; b<"));
  EXPECT_THAT(svg_text(0, 0, "caf\u00e9 \u20ac \U0001F6A2"), testing::HasSubstr(">caf\u00e9 \u20ac \U0001F6A2<"));
  for (const char* wrong : {"\xff", "\xc3", "\xc0\x80", "\xe2\x82", "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80",
                            "\xf0\x80\x80\x80", "\x80", "\x01"})
    EXPECT_THAT(svg_text(0, 0, std::string("a") + wrong + "b"), testing::ContainsRegex(">a(\uFFFD)+b<")) << wrong;
}

}  // namespace
}  // namespace ferry::app
