// The calls that run all exchanges of a process at once.
#include <exception>
#include <memory>
#include <thread>

#include "conformance/cases/cases.h"
#include "conformance/rounds/rank_round.h"

namespace ferry::conformance {
namespace {

constexpr Shape kShape{.ranks = 4, .experts = 10, .top_k = 4, .max_tokens = 11, .hidden = 64};

// All exchanges of a world whose ranks are one process.
class Process {
 public:
  Process(const Target& target, const ExchangeOptions& options) {
    if (!target.make_worlds) throw Skipped("the ranks of this backend are not one process");
    if (target.max_ranks < kShape.ranks) throw Skipped("needs 4 ranks");
    worlds_ = target.make_worlds(kShape.ranks);
    owned_.resize(worlds_.size());
    std::vector<std::exception_ptr> errors(worlds_.size());
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < worlds_.size(); ++rank)
      threads.emplace_back([&, rank] {
        try {
          owned_[rank] = std::make_unique<Exchange>(*worlds_[rank], kShape, options);
        } catch (...) {
          errors[rank] = std::current_exception();
        }
      });
    for (std::thread& thread : threads) thread.join();
    for (const std::exception_ptr& error : errors)
      if (error) std::rethrow_exception(error);
    for (const auto& exchange : owned_) exchanges.push_back(exchange.get());
  }

  std::vector<Exchange*> exchanges;

 private:
  std::vector<std::unique_ptr<World>> worlds_;
  std::vector<std::unique_ptr<Exchange>> owned_;
};

struct Inputs {
  explicit Inputs(const Scenario& scenario) {
    for (int rank = 0; rank < kShape.ranks; ++rank) {
      rounds.push_back(std::make_unique<RankRound>(scenario, rank));
      in.push_back(rounds.back()->in);
      out.push_back(rounds.back()->out);
      combine_in.push_back(rounds.back()->combine_in);
      combine_out.push_back(rounds.back()->combine_out);
    }
  }
  std::vector<std::unique_ptr<RankRound>> rounds;
  std::vector<DispatchInput> in;
  std::vector<DispatchOutput> out;
  std::vector<CombineInput> combine_in;
  std::vector<CombineOutput> combine_out;
};

Scenario scenario_for(Reduction reduction) {
  ScenarioSettings settings;
  settings.shape = kShape;
  settings.options = options_for("mxfp8", reduction);
  settings.seed = 9;
  return make_scenario(settings);
}

void all_exchanges(const Target& target) {
  for (const Reduction reduction : {Reduction::by_rank, Reduction::exact}) {
    const Scenario scenario = scenario_for(reduction);
    const Process process(target, scenario.settings.options);
    for (int repeat = 0; repeat < 3; ++repeat) {
      const Inputs inputs(scenario);
      dispatch_all(process.exchanges, inputs.in, inputs.out);
      for (const auto& round : inputs.rounds) round->check_rows();
      combine_all(process.exchanges, inputs.combine_in, inputs.combine_out);
      for (const auto& round : inputs.rounds) round->check_tokens();
    }
  }
}

// Options of its own for each exchange: the rank with the short deadline is the one that gives up.
void options_of_each(const Target& target) {
  if (!target.can_lose_ranks) throw Skipped("this backend cannot go on without a rank");
  const Scenario scenario = scenario_for(Reduction::by_rank);
  const Process process(target, scenario.settings.options);
  const Inputs inputs(scenario);
  std::vector<CallOptions> calls(process.exchanges.size());
  dispatch_all(process.exchanges, inputs.in, inputs.out, calls);
  for (const auto& round : inputs.rounds) round->check_rows();
  combine_all(process.exchanges, inputs.combine_in, inputs.combine_out, calls);
  for (const auto& round : inputs.rounds) round->check_tokens();
  expect_error(-1, "dispatch_all with options of one exchange missing", ErrorKind::invalid_argument,
               {"dispatch_all", "4, 4, 4, 3"},
               [&] { dispatch_all(process.exchanges, inputs.in, inputs.out, std::span(calls).first(3)); });
  calls.resize(3);
  calls[1].deadline = std::chrono::milliseconds(300);
  try {
    dispatch_all(std::span(process.exchanges).first(3), std::span(inputs.in).first(3), std::span(inputs.out).first(3),
                 calls);
  } catch (const PeerMissing& error) {
    expect_equal(-1, "the rank that is missing", 3, static_cast<std::uint64_t>(error.record().missing_rank));
    return expect_equal(-1, "the rank that gives up", 1, static_cast<std::uint64_t>(error.record().reported_by));
  }
  throw Failure(-1, "dispatch_all without rank 3", "PeerMissing", "no error");
}

void first_error(const Target& target) {
  const Scenario scenario = scenario_for(Reduction::by_rank);
  const CallOptions soon{std::chrono::milliseconds(300)};
  {
    const Process process(target, scenario.settings.options);
    Inputs inputs(scenario);
    inputs.in[2].topk_ids.dtype = DType::f32;
    expect_error(-1, "dispatch_all with bad ids on rank 2", ErrorKind::invalid_argument, {"rank 2", "topk_ids", "f32"},
                 [&] { dispatch_all(process.exchanges, inputs.in, inputs.out, soon); });
  }
  const Process process(target, scenario.settings.options);
  const Inputs inputs(scenario);
  expect_error(-1, "dispatch_all with one input missing", ErrorKind::invalid_argument, {"dispatch_all", "4", "3"},
               [&] { dispatch_all(process.exchanges, std::span(inputs.in).first(3), inputs.out, soon); });
  expect_error(-1, "combine_all with one output missing", ErrorKind::invalid_argument, {"combine_all", "4", "3"}, [&] {
    combine_all(process.exchanges, inputs.combine_in, std::span(inputs.combine_out).first(3), soon);
  });
  dispatch_all(process.exchanges, inputs.in, inputs.out);
  for (const auto& round : inputs.rounds) round->check_rows();
}

// Worlds and exchanges may be made, used and destroyed on different threads and in any order.
void any_thread(const Target& target) {
  const Scenario scenario = scenario_for(Reduction::exact);
  auto process = std::make_unique<Process>(target, scenario.settings.options);
  const Inputs inputs(scenario);
  std::thread([&] { dispatch_all(process->exchanges, inputs.in, inputs.out); }).join();
  combine_all(process->exchanges, inputs.combine_in, inputs.combine_out);
  for (const auto& round : inputs.rounds) round->check_tokens();
  std::thread([&] { process.reset(); }).join();
}

}  // namespace

void add_process_cases(Cases& cases) {
  cases.push_back({"process/all_exchanges", "dispatch_all and combine_all", true, all_exchanges});
  cases.push_back({"process/options_of_each", "dispatch_all and combine_all with options for each exchange", true,
                   options_of_each});
  cases.push_back({"process/first_error", "the first error of dispatch_all comes back", true, first_error});
  cases.push_back({"process/any_thread", "exchanges move between threads", true, any_thread});
}

}  // namespace ferry::conformance
