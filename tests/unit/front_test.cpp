// The front of an exchange, over steps that only write down how they are called.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "conformance/rounds/rank_round.h"
#include "exchange/exchange_steps.h"
#include "ferry/detail/cuda/state/device_state.h"
#include "ferry/exchange.h"

namespace ferry::cuda {

// In place of that of compiled_access.h, which needs CUDA's headers.
class CompiledAccess {
 public:
  static void set_hooks(Exchange& exchange) { exchange.set_hooks(HookBytes{}); }
  static void require_hooks(Exchange& exchange) { exchange.require_hooks(); }
};

}  // namespace ferry::cuda

namespace ferry {
namespace {

using std::chrono::milliseconds;

// What the steps of one exchange were called with, and how they behave.
struct Journal {
  std::vector<std::string> calls;
  std::vector<Epoch> epochs;  // of the tickets
  milliseconds deadline{0};
  RankMask mask;
  bool fuses = false;
  bool takes_device_memory = false;
  bool ends = false;  // the next step ends the exchange
  int inside = 0;     // enter without leave
};

class JournalSteps final : public ExchangeSteps {
 public:
  explicit JournalSteps(Journal& journal) : journal_(journal) {}

  void enter() override { ++journal_.inside; }
  void leave() noexcept override { --journal_.inside; }
  void start(const CallOptions&, milliseconds deadline) override {
    journal_.deadline = deadline;
    journal_.calls.emplace_back("start");
  }
  void check_dispatch_input(const CheckContext&, const DispatchInput&, DispatchArgs&) override {
    EXPECT_EQ(journal_.inside, 1);
  }
  void check_combine_input(const CheckContext&, const Ticket&, const CombineInput&, const CombineArgs&) override {}
  const std::byte* arrival_slots() override { return nullptr; }
  void send(const Ticket& ticket, const DispatchArgs&) override { note("send", ticket); }
  void receive(const Ticket& ticket, const RowsOut&) override { note("receive", ticket); }
  void send_back(const Ticket& ticket, const CombineArgs& args) override {
    note("send_back", ticket);
    sent_ = args.rows;
  }
  void reduce(const Ticket& ticket, const CombineArgs& sent, const CombineOut&) override {
    note("reduce", ticket);
    EXPECT_EQ(sent.rows, sent_);
  }
  bool fuses_halves() const override { return journal_.fuses; }
  void dispatch(const Ticket& ticket, const DispatchArgs&, const RowsOut&) override { note("dispatch", ticket); }
  void combine(const Ticket& ticket, const CombineArgs&, const CombineOut&) override { note("combine", ticket); }
  void poll() override { journal_.calls.emplace_back("poll"); }
  void set_mask(const RankMask& mask) override { journal_.mask = mask; }
  Stats stats() const override { return {}; }

 private:
  void note(const char* step, const Ticket& ticket) {
    EXPECT_EQ(journal_.inside, 1);
    EXPECT_EQ(ticket.num_tokens, 3);
    journal_.calls.emplace_back(step);
    journal_.epochs.push_back(ticket.message);
    if (!journal_.ends) return;
    WaitRecord record;
    record.my_rank = record.reported_by = 0;
    record.missing_rank = 2;
    end_exchange(record);
  }

  Journal& journal_;
  const std::byte* sent_ = nullptr;
};

// Rank 0 of three. The other ranks do not exist: all_gather answers for them with what rank 0 says.
class JournalWorld final : public World {
 public:
  explicit JournalWorld(Journal& journal) : journal_(journal) {}
  WorldKind kind() const override { return WorldKind::other; }
  const char* backend() const override { return "journal"; }
  WorldCapabilities capabilities() const override { return {.device_memory = journal_.takes_device_memory}; }
  int rank() const override { return 0; }
  int size() const override { return 3; }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all, const RankMask&, milliseconds) override {
    for (std::size_t at = 0; at < all.size(); at += mine.size())
      std::copy(mine.begin(), mine.end(), all.begin() + static_cast<std::ptrdiff_t>(at));
  }
  std::unique_ptr<ExchangeSteps> make_steps(const Shape&, const ExchangeOptions&, const HeapMap&) override {
    return std::make_unique<JournalSteps>(journal_);
  }

 private:
  Journal& journal_;
};

using Names = std::vector<std::string>;

class Front : public testing::Test {
 protected:
  static conformance::Scenario scenario_of() {
    conformance::ScenarioSettings settings;
    settings.shape = {.ranks = 3, .experts = 6, .top_k = 2, .max_tokens = 3, .hidden = 32};
    settings.options = conformance::options_for("bf16");
    settings.options.deadline = milliseconds(700);
    return conformance::make_scenario(settings);
  }

  Names take_calls() { return std::exchange(journal_.calls, {}); }
  std::string refused(const std::function<void()>& call, ErrorKind kind) {
    try {
      call();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind) << error.what();
      EXPECT_EQ(journal_.inside, 0);
      return error.what();
    }
    ADD_FAILURE() << "nothing was thrown";
    return "";
  }

  Journal journal_;
  JournalWorld world_{journal_};
  const conformance::Scenario scenario_ = scenario_of();
  const conformance::RankRound round_{scenario_, 0};
  Exchange exchange_{world_, scenario_.settings.shape, scenario_.settings.options};
};

TEST_F(Front, RunsTheHalvesOneAfterTheOther) {
  exchange_.dispatch(round_.in, round_.out);
  EXPECT_EQ(take_calls(), (Names{"start", "send", "receive"}));
  exchange_.combine(round_.combine_in, round_.combine_out);
  EXPECT_EQ(take_calls(), (Names{"start", "send_back", "reduce"}));
  exchange_.dispatch_async(round_.in);
  exchange_.dispatch_wait(round_.out);
  exchange_.combine_async(round_.combine_in);
  exchange_.combine_wait(round_.combine_out);
  EXPECT_EQ(take_calls(), (Names{"start", "send", "start", "receive", "start", "send_back", "start", "reduce"}));
  const Epoch first = kFirstEpoch;
  EXPECT_EQ(journal_.epochs,
            (std::vector<Epoch>{first, first, first, first, first + 1, first + 1, first + 1, first + 1}));
  EXPECT_EQ(journal_.inside, 0);
}

TEST_F(Front, RunsBothHalvesInOneStepWhereTheBackendDoes) {
  journal_.fuses = true;
  exchange_.dispatch(round_.in, round_.out);
  exchange_.combine(round_.combine_in, round_.combine_out);
  EXPECT_EQ(take_calls(), (Names{"start", "dispatch", "start", "combine"}));
}

TEST_F(Front, RefusesACallBeforeAnyStepIsCalled) {
  refused([&] { exchange_.combine(round_.combine_in, round_.combine_out); }, ErrorKind::out_of_order);
  EXPECT_EQ(take_calls(), Names{});
  DispatchInput bad = round_.in;
  bad.tokens.dtype = DType::i32;
  refused([&] { exchange_.dispatch(bad, round_.out); }, ErrorKind::invalid_argument);
  EXPECT_EQ(take_calls(), Names{"start"});
  exchange_.dispatch(round_.in, round_.out);
  EXPECT_EQ(journal_.epochs.front(), Epoch{kFirstEpoch});  // the refused dispatch took no epoch
}

TEST_F(Front, GivesEachCallItsDeadline) {
  exchange_.dispatch(round_.in, round_.out);
  EXPECT_EQ(journal_.deadline, milliseconds(700));
  exchange_.dispatch(round_.in, round_.out, {.deadline = milliseconds(90)});
  EXPECT_EQ(journal_.deadline, milliseconds(90));
  exchange_.dispatch(round_.in, round_.out, {.deadline = kMaxDeadline + milliseconds(1)});
  EXPECT_EQ(journal_.deadline, kMaxDeadline);
}

TEST_F(Front, AddsToTheMask) {
  exchange_.add_to_mask({false, true});
  EXPECT_EQ(journal_.mask, (RankMask{false, true, false}));
  exchange_.add_to_mask({false, false, true});
  EXPECT_EQ(journal_.mask, (RankMask{false, true, true}));
  refused([&] { exchange_.add_to_mask({true}); }, ErrorKind::invalid_argument);
  EXPECT_EQ(journal_.mask, (RankMask{false, true, true}));
}

TEST_F(Front, RefusesEveryCallOnceAStepHasEndedTheExchange) {
  journal_.ends = true;
  const std::string first = refused([&] { exchange_.dispatch(round_.in, round_.out); }, ErrorKind::peer_missing);
  EXPECT_EQ(take_calls(), (Names{"start", "send"}));
  const std::string again = first + " This exchange refuses every call since then";
  EXPECT_EQ(refused([&] { exchange_.dispatch_async(round_.in); }, ErrorKind::peer_missing), again);
  EXPECT_EQ(refused([&] { exchange_.combine_wait(round_.combine_out); }, ErrorKind::peer_missing), again);
  EXPECT_EQ(take_calls(), Names{});
  EXPECT_EQ(refused([&] { exchange_.check(); }, ErrorKind::peer_missing), again);
  EXPECT_EQ(take_calls(), Names{"poll"});
}

// Kernels with hooks would read those of an earlier call.
TEST_F(Front, RefusesCallsThatReadHooksWithoutThem) {
  using cuda::CompiledAccess;
  const auto refuses = [&](const std::function<void()>& call) {
    const std::string text = refused(call, ErrorKind::invalid_argument);
    EXPECT_NE(text.find("rank 0: the kernels of this exchange have hooks, and none are given"), std::string::npos);
    EXPECT_EQ(take_calls(), Names{});
  };
  CompiledAccess::require_hooks(exchange_);
  refuses([&] { exchange_.dispatch(round_.in, round_.out); });
  refuses([&] { exchange_.dispatch_async(round_.in); });
  CompiledAccess::set_hooks(exchange_);
  exchange_.dispatch_async(round_.in);
  exchange_.dispatch_wait(round_.out);
  CompiledAccess::set_hooks(exchange_);
  refused([&] { exchange_.dispatch_wait(round_.out); }, ErrorKind::out_of_order);
  take_calls();
  refuses([&] { exchange_.combine(round_.combine_in, round_.combine_out); });  // the call before took them
  exchange_.combine_async(round_.combine_in);
  take_calls();
  refuses([&] { exchange_.combine_wait(round_.combine_out); });
  CompiledAccess::set_hooks(exchange_);
  exchange_.combine_wait(round_.combine_out);
  EXPECT_EQ(take_calls(), (Names{"start", "reduce"}));
}

TEST_F(Front, ComparesTheWorldWithTheShape) {
  Shape shape = scenario_.settings.shape;
  shape.ranks = 2;
  const std::string text =
      refused([&] { Exchange(world_, shape, scenario_.settings.options); }, ErrorKind::invalid_argument);
  EXPECT_EQ(text, "rank 0: shape.ranks is 2; this world has 3 ranks");
}

// dispatch_all and combine_all: those of GPUs are called one after the other, so a late refusal would leave a part
// called.
TEST_F(Front, OfAllExchangesIsCalledForNoneWhereOneCannotBe) {
  journal_.takes_device_memory = true;
  Exchange first(world_, scenario_.settings.shape, scenario_.settings.options);
  Exchange gone(world_, scenario_.settings.shape, scenario_.settings.options);
  const Exchange heir(std::move(gone));
  take_calls();
  const auto expect_refused = [&](Exchange* second, ErrorKind kind, const char* part) {
    Exchange* const both[] = {&first, second};
    const DispatchInput in[] = {round_.in, round_.in};
    const DispatchOutput out[] = {round_.out, round_.out};
    const CombineInput combine_in[] = {round_.combine_in, round_.combine_in};
    const CombineOutput combine_out[] = {round_.combine_out, round_.combine_out};
    for (const std::string& text : {refused([&] { dispatch_all(both, in, out); }, kind),
                                    refused([&] { combine_all(both, combine_in, combine_out); }, kind)})
      EXPECT_NE(text.find(part), std::string::npos) << text;
    EXPECT_EQ(take_calls(), Names{});
  };
  expect_refused(&gone, ErrorKind::out_of_order, "moved from");  // NOLINT(bugprone-use-after-move)
  expect_refused(nullptr, ErrorKind::invalid_argument, "exchanges[1] is null");
  expect_refused(&first, ErrorKind::invalid_argument, "exchanges[0] and exchanges[1] are the same");
}

}  // namespace
}  // namespace ferry
