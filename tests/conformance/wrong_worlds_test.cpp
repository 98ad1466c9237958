// Worlds that do one thing wrong: the suite must say so, in a case that names the thing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <ostream>
#include <string>
#include <vector>

#include "conformance/oracle/oracle.h"
#include "conformance/suite.h"
#include "conformance/wrong_world.h"

namespace ferry::test {
namespace {

using conformance::Case;
using conformance::Failure;
using conformance::Target;

struct Wrong {
  std::string name;
  std::string found_by;  // the case
  std::string place;     // that its failure names
  Damage damage;
};
void PrintTo(const Wrong& wrong, std::ostream* out) { *out << wrong.name; }

Target target_of(const Damage& damage) {
  Target target = conformance::thread_target();
  target.make_worlds = [&damage](int ranks) {
    std::vector<std::unique_ptr<World>> worlds;
    for (std::unique_ptr<World>& world : make_thread_worlds(ranks))
      worlds.push_back(std::make_unique<WrongWorld>(std::move(world), damage));
    return worlds;
  };
  target.run_ranks = [make = target.make_worlds](int ranks, const std::function<void(World&)>& body) {
    run_worlds(make(ranks), body);
  };
  return target;
}

std::vector<Wrong> wrong_statistics() {
  const auto of_handle = [](Operation which, bool has_handle) {
    return [which, has_handle](Operation operation, const Ticket& ticket) {
      return operation == which && (ticket.handle != nullptr) == has_handle;
    };
  };
  std::vector<Wrong> all;
  for (const std::string order : {"by_expert", "padded", "by_source", "in_place"}) {
    const std::string found_by = "reports/statistics_" + order;
    all.push_back(
        {"ReplaysCountNoBytes_" + order, found_by, "bytes_sent", {.uncounted = of_handle(Operation::dispatch, true)}});
    all.push_back({"CombinesOfHandlesCountNoBytes_" + order,
                   found_by,
                   "bytes_sent",
                   {.uncounted = of_handle(Operation::combine, true)}});
    all.push_back(
        {"CombinesCountNoBytes_" + order, found_by, "bytes_sent", {.uncounted = of_handle(Operation::combine, false)}});
  }
  const auto add = [&](const char* name, const char* found_by, const char* place, std::function<void(Stats&)> change) {
    all.push_back({name, found_by, place, {.stats = std::move(change)}});
  };
  add("MessagesOfOtherRanks", "reports/statistics_by_source", "messages_sent",
      [](Stats& stats) { std::swap(stats.messages_sent.front(), stats.messages_sent.back()); });
  add("RowsOfOtherRanks", "reports/statistics_in_place", "received",
      [](Stats& stats) { std::swap(stats.received.front(), stats.received.back()); });
  add("BytesOfOtherFormats", "reports/statistics_options", "received bytes", [](Stats& stats) {
    for (ExpertTraffic& each : stats.received) each.bytes *= 2;
  });
  add("NothingIsDropped", "reports/statistics_masks", "dropped", [](Stats& stats) { stats.dropped = 0; });
  add("MaskedRanksGetBytes", "reports/statistics_masks", "bytes_sent", [](Stats& stats) { stats.bytes_sent[1] += 64; });
  add("CountsAreNoBytes", "reports/statistics_counts", "bytes_sent",
      [](Stats& stats) { stats.bytes_sent.back() -= 4; });
  add("EverythingIsFinite", "reports/statistics_not_finite", "non_finite_blocks",
      [](Stats& stats) { stats.non_finite_blocks = 0; });
  add("LongWaits", "reports/waits", "Stats::waited_ns", [](Stats& stats) { stats.waited_ns[2] += 3'600'000'000'000; });
  all.push_back(
      {"LongWaitsOfDispatches", "reports/waits", "waited_ns of dispatches", {.after_receive = [](const RowsOut& rows) {
         if (rows.waited_ns != nullptr) rows.waited_ns[2] += 3'600'000'000'000;
       }}});
  all.push_back({"LongWaitsOfCombines",
                 "reports/waits",
                 "waited_ns of dispatches",
                 {.after_reduce = [](const Ticket&, const CombineArgs&, const CombineOut& out) {
                   if (out.waited_ns != nullptr) out.waited_ns[2] += 3'600'000'000'000;
                 }}});
  return all;
}

// Changes each value of a combine's output.
void for_each_sum(const Ticket& ticket, const CombineOut& out, const std::function<float(float)>& change) {
  const auto count = ticket.num_tokens * out.token_bytes / static_cast<std::int64_t>(size_of(out.dtype));
  for (std::int64_t i = 0; i < count; ++i) {
    std::byte* at = out.tokens + i * static_cast<std::int64_t>(size_of(out.dtype));
    if (out.dtype == DType::f32) {
      float value = 0;
      std::memcpy(&value, at, sizeof value);
      value = change(value);
      std::memcpy(at, &value, sizeof value);
      continue;
    }
    std::uint16_t bits = 0;
    std::memcpy(&bits, at, sizeof bits);
    const bool is_f16 = out.dtype == DType::f16;
    const float value = change(is_f16 ? from_f16(bits) : from_bf16(bits));
    bits = is_f16 ? to_f16(value) : to_bf16(value);
    std::memcpy(at, &bits, sizeof bits);
  }
}

std::vector<Wrong> wrong_sums() {
  const auto changing = [](DType dtype, const std::function<float(float)>& change) {
    return Damage{.after_reduce = [=](const Ticket& ticket, const CombineArgs&, const CombineOut& out) {
      if (out.dtype == dtype) for_each_sum(ticket, out, change);
    }};
  };
  const auto no_nan = [](float value) { return std::isnan(value) ? 0.0f : value; };
  const auto no_infinity = [](float value) { return std::isinf(value) ? std::copysign(65504.0f, value) : value; };
  const auto all_nan = [](float value) { return std::isinf(value) ? NAN : value; };
  std::vector<Wrong> all;
  for (const std::string sums : {"by_rank", "exact"})
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      const std::string of = "_" + sums + "_" + to_string(dtype), found_by = "extremes/" + sums;
      all.push_back({"NoNan" + of, found_by, "combine's tokens", changing(dtype, no_nan)});
      all.push_back({"Saturated" + of, found_by, "combine's tokens", changing(dtype, no_infinity)});
      all.push_back({"InfinitiesAreNan" + of, found_by, "combine's tokens", changing(dtype, all_nan)});
    }
  return all;
}

template <class T>
void spoil(const T* memory) {
  if (memory != nullptr) *reinterpret_cast<unsigned char*>(const_cast<T*>(memory)) ^= 1;
}

// Far behind the words that say what the handle is of.
void spoil_end(const std::byte* handle) {
  if (handle != nullptr) spoil(handle + 256);
}

// A bit of what a call was given changes in it.
std::vector<Wrong> wrong_inputs() {
  using Out = CombineOut;
  const auto in_dispatch = [](auto field) {
    return Damage{.after_send = [=](const Ticket&, const DispatchArgs& args) {
      if (args.num_tokens != 0) field(args);
    }};
  };
  const auto in_combine = [](auto field) {
    return Damage{.after_reduce = [=](const Ticket& ticket, const CombineArgs& args, const Out&) {
      if (ticket.num_tokens != 0) field(args);
    }};
  };
  return {
      {"Tokens", "own/types", "tokens, which", in_dispatch([](const DispatchArgs& a) { spoil(a.tokens); })},
      {"Ids", "own/types", "topk_ids, which",
       in_dispatch([](const DispatchArgs& a) { spoil(static_cast<const std::byte*>(a.ids.data)); })},
      {"Weights", "own/types", "topk_weights, which",
       in_dispatch([](const DispatchArgs& a) { spoil(a.weights.data); })},
      {"GivenScales", "options/encoded_tokens", "token_scales, which",
       in_dispatch([](const DispatchArgs& a) { spoil(a.scales.data); })},
      {"GlobalScales", "options/dynamic_scales", "token_global_scales, which",
       in_dispatch([](const DispatchArgs& a) { spoil(a.global_scales); })},
      {"ExpertCounts", "counts/by_counts", "expert_counts, which",
       in_dispatch([](const DispatchArgs& a) { spoil(a.expert_counts); })},
      {"Rows", "own/types", "rows, which", in_combine([](const CombineArgs& a) {
         if (a.num_rows != 0) spoil(a.rows);
       })},
      {"Bias", "own/types", "bias, which", in_combine([](const CombineArgs& a) { spoil(a.bias[0].data); })},
      {"LateWeights", "own/types", "topk_weights, which",
       in_combine([](const CombineArgs& a) { spoil(a.weights.data); })},
      {"RowWeights", "weights/returned", "row_topk_weights, which",
       in_combine([](const CombineArgs& a) { spoil(a.row_weights); })},
      {"HandleOfADispatch",
       "own/types",
       "handle, which",
       {.after_send = [](const Ticket& ticket, const DispatchArgs&) { spoil_end(ticket.handle); }}},
      {"HandleOfACombine",
       "handles/micro_batches_by_rank",
       "handle, which",
       {.after_reduce = [](const Ticket& ticket, const CombineArgs&, const Out&) { spoil_end(ticket.handle); }}},
  };
}

std::vector<Wrong> wrong_counts() {
  const auto where = [](auto is_wrong, auto change) {
    return Damage{.row_counts = [=](RowCounts& counts, const Ticket& ticket) {
      if (is_wrong(ticket)) change(counts);
    }};
  };
  const auto overflows = [](const Ticket& ticket) { return ticket.overflow != Overflow::refused; };
  const auto by_counts = [](const Ticket& ticket) { return ticket.by_counts; };
  const auto rows = [](RowCounts& counts) { ++counts.rows; };
  const auto expert = [](RowCounts& counts) { ++counts.by_expert.back(); };
  const auto source = [](RowCounts& counts) { ++counts.by_source.back(); };
  std::vector<Wrong> all;
  for (const std::string order : {"by_expert", "padded", "by_source", "in_place"}) {
    all.push_back({"Rows_" + order, "sizes/overflow_" + order, "counts: rows", where(overflows, rows)});
    all.push_back({"Experts_" + order, "sizes/overflow_" + order, "counts by expert", where(overflows, expert)});
    all.push_back({"Sources_" + order, "sizes/overflow_" + order, "counts by source", where(overflows, source)});
  }
  all.push_back({"RowsByCounts", "sizes/by_counts", "counts: rows", where(by_counts, rows)});
  all.push_back({"ExpertsByCounts", "sizes/by_counts", "counts by expert", where(by_counts, expert)});
  all.push_back({"SourcesByCounts", "sizes/by_counts", "counts by source", where(by_counts, source)});
  return all;
}

// A world that does more than it says, or less.
std::vector<Wrong> wrong_capabilities() {
  using Can = WorldCapabilities;
  const auto says = [](bool Can::*flag, bool value) {
    return Damage{.capabilities = [=](Can& can) { can.*flag = value; }};
  };
  const auto refuse = [] { throw Error(ErrorKind::unsupported, "it is not there"); };
  std::vector<Wrong> all;
  all.push_back({"DeniesSkipA2a", "world/capabilities", "skip_a2a", says(&Can::skip_a2a, false)});
  all.push_back({"DeniesHooks", "world/capabilities", "function_hooks", says(&Can::function_hooks, false)});
  all.push_back({"DeniesResultFormats", "world/capabilities", "result_formats", says(&Can::result_formats, false)});
  all.push_back({"SaysGpus", "world/kinds", "gpus", says(&Can::gpus, true)});
  all.push_back({"SaysRemoteRanks", "world/kinds", "remote_ranks", says(&Can::remote_ranks, true)});
  all.push_back({"SaysCompiledHooks", "world/kinds", "compiled_hooks", says(&Can::compiled_hooks, true)});
  all.push_back({"CannotRelease", "world/capabilities", "release", {.cannot_release = true}});
  all.push_back({"KeepsNoWords", "shared_memory/rounds_by_rank", "rank", {.keeps_no_words = true}});
  all.push_back({"NoHandles",
                 "world/capabilities",
                 "handles",
                 {.before_send_back = [=](const Ticket& ticket, const CombineArgs&) {
                   if (ticket.handle != nullptr) refuse();
                 }}});
  all.push_back(
      {"NoOverflow", "world/capabilities", "overflow", {.before_send = [=](const Ticket& ticket, const DispatchArgs&) {
         if (ticket.overflow != Overflow::refused) refuse();
       }}});
  all.push_back({"NoReturnedWeights",
                 "world/capabilities",
                 "returned_weights",
                 {.before_send_back = [=](const Ticket&, const CombineArgs& args) {
                   if (args.row_weights != nullptr) refuse();
                 }}});
  all.push_back({"NoCounts",
                 "world/capabilities_orders",
                 "counts_dispatch",
                 {.before_send = [=](const Ticket& ticket, const DispatchArgs&) {
                   if (ticket.by_counts) refuse();
                 }}});
  all.push_back({"NoPaddedRows",
                 "world/capabilities_orders",
                 "padded",
                 {.before_send = [=](const Ticket& ticket, const DispatchArgs&) {
                   if (ticket.rows.order == RowOrder::padded) refuse();
                 }}});
  return all;
}

// What one rank asks for is not done, or what all others ask for is done to it.
std::vector<Wrong> wrong_options() {
  return {
      {"OneOrderOfSums", "own/types", "combine's tokens", {.sums = [](CombineArgs& args) { args.by_last_k = false; }}},
      {"OneNumberOfBiases",
       "own/types",
       "combine's tokens",
       {.sums = [](CombineArgs& args) { args.num_bias = std::min(args.num_bias, 1); }}},
      {"NobodyClearsPadding", "own/outputs", "payload", {.rows = [](RowsOut& rows) { rows.zeroes_padding = false; }}},
      {"NobodyGetsSources", "own/outputs", "row_sources", {.rows = [](RowsOut& rows) { rows.row_sources = nullptr; }}},
      {"LessMemory", "reports/memory_bytes", "memory_use", {.given_back = 64}},
  };
}

class WrongWorlds : public testing::TestWithParam<Wrong> {};

TEST_P(WrongWorlds, AreFound) {
  for (const Case& each : conformance::all_cases()) {
    if (each.name != GetParam().found_by) continue;
    try {
      each.run(target_of(GetParam().damage));
    } catch (const Failure& failure) {
      EXPECT_THAT(failure.what(), testing::HasSubstr(GetParam().place));
      return;
    }
    FAIL() << each.name << " passes";
  }
  FAIL() << "no case " << GetParam().found_by;
}

std::string name_of(const testing::TestParamInfo<Wrong>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Sums, WrongWorlds, testing::ValuesIn(wrong_sums()), name_of);
INSTANTIATE_TEST_SUITE_P(Inputs, WrongWorlds, testing::ValuesIn(wrong_inputs()), name_of);
INSTANTIATE_TEST_SUITE_P(Counts, WrongWorlds, testing::ValuesIn(wrong_counts()), name_of);
INSTANTIATE_TEST_SUITE_P(Capabilities, WrongWorlds, testing::ValuesIn(wrong_capabilities()), name_of);
INSTANTIATE_TEST_SUITE_P(Options, WrongWorlds, testing::ValuesIn(wrong_options()), name_of);
INSTANTIATE_TEST_SUITE_P(Statistics, WrongWorlds, testing::ValuesIn(wrong_statistics()), name_of);

// The world without damage passes: what fails above is the damage.
TEST(UndamagedWorlds, Pass) {
  const Damage none;
  for (const Case& each : conformance::all_cases()) {
    if (!each.name.starts_with("reports/statistics") && each.name != "reports/waits") continue;
    EXPECT_NO_THROW(each.run(target_of(none))) << each.name;
  }
}

}  // namespace
}  // namespace ferry::test
