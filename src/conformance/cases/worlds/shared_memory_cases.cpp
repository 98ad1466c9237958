// Cases over exchanges that share one memory and are never open together: whoever has it, rounds give the bytes of the
// oracle, and what was kept stays good.
#include <chrono>
#include <iterator>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "conformance/cases/cases.h"
#include "conformance/cases/worlds/shared_memory.h"
#include "conformance/rounds/handle_sequence.h"

namespace ferry::conformance {
namespace {

// Three exchanges, in an order in which each comes after each other one.
void rounds(const Target& target, Reduction reduction, bool skips) {
  const Reduction other = reduction == Reduction::exact ? Reduction::by_rank : Reduction::exact;
  const Scenario scenarios[] = {sharing_scenario(kLargeMemory, "bf16", Reduction::exact, 60, "ragged", skips),
                                sharing_scenario(kSmallMemory, "mxfp8", reduction, 61, "uniform", skips),
                                sharing_scenario(kMiddleMemory, "nvfp4", other, 62, "empty_ranks", skips)};
  with_sharing(target, kSharingRanks, "rounds of exchanges that share a memory", [&](World& world) {
    std::vector<Exchange> exchanges;
    exchanges.push_back(make_alone(world, scenarios[0]));
    const std::size_t bytes = exchanges[0].memory_bytes();
    run_round(exchanges[0], scenarios[0], Form::split);
    for (std::size_t i = 1; i < std::size(scenarios); ++i) {
      exchanges.push_back(make_in(exchanges[i - 1], scenarios[i]));  // it has the memory at once
      run_round(exchanges[i], scenarios[i], Form::one_call);
      expect_equal(world.rank(), "memory_bytes() of an exchange in another's memory", 0, exchanges[i].memory_bytes());
    }
    expect_equal(world.rank(), "memory_bytes() of the oldest exchange", bytes, exchanges[0].memory_bytes());
    const std::byte* const slots = exchanges[0].arrival_slots().payload.as<std::byte>();
    for (const std::size_t which : {2, 0, 1, 2, 1, 0, 0}) {
      exchanges[which].take_memory();
      for (const Form form : {Form::split, Form::one_call}) run_round(exchanges[which], scenarios[which], form);
    }
    if (exchanges[0].arrival_slots().payload.as<std::byte>() != slots)
      throw Failure(world.rank(), "arrival_slots()", "the same address", "another one");
  });
}

// A handle of before, and a combine whose dispatch came before another exchange had the memory, or that never comes.
void kept(const Target& target, Reduction reduction) {
  const Scenario first = sharing_scenario(kLargeMemory, "mxfp8", reduction, 63);
  const Scenario second = sharing_scenario(kLargeMemory, "mxfp8", reduction, 64, "some_none");
  const Scenario between = sharing_scenario(kMiddleMemory, "bf16", reduction, 65);
  with_sharing(target, kSharingRanks, "what is kept while another exchange has the memory", [&](World& world) {
    if (!world.capabilities().handles) throw Skipped("the exchanges of this world have no handles");
    Exchange exchange = make_alone(world, first);
    HandleMemory handle(exchange);
    RankRound with_handle(first, world.rank());
    with_handle.out.handle = handle.tensor();
    run_dispatch(exchange, with_handle, Form::split);
    with_handle.check_rows();
    Exchange other = make_in(exchange, between);
    const auto to_other_and_back = [&] {
      other.take_memory();
      run_round(other, between, Form::split);
      exchange.take_memory();
    };
    exchange.take_memory();
    for (int repeat = 0; repeat < 3; ++repeat) {
      RankRound open(second, world.rank());
      run_dispatch(exchange, open, Form::split);
      open.check_rows();
      to_other_and_back();
      RankRound back(first, world.rank());
      back.combine_in.src_info = {};
      back.combine_in = combine_input_with(back, handle);
      run_combine(exchange, back, Form::one_call);
      back.check_tokens();
      if (repeat == 0) continue;  // no combine at all
      run_combine(exchange, open, Form::one_call);
      open.check_tokens();
      to_other_and_back();
      RankRound replay(first, world.rank());
      replay.in = input_with(replay, handle);
      run_dispatch(exchange, replay, Form::one_call);
      replay.check_rows();
    }
  });
}

// What an exchange without the memory refuses.
void without_memory(const Target& target) {
  const Scenario scenario = sharing_scenario(kLargeMemory, "bf16", Reduction::by_rank, 66);
  with_sharing(target, kSharingRanks, "calls of an exchange without the memory", [&](World& world) {
    const int rank = world.rank();
    Exchange exchange = make_alone(world, scenario);
    run_round(exchange, scenario, Form::split);
    RankRound round(scenario, rank);
    Exchange other = make_in(exchange, scenario);
    const auto refuses = [&](const char* place, const std::function<void()>& call) {
      expect_error(rank, place, ErrorKind::out_of_order, {"take_memory()"}, call);
    };
    refuses("dispatch_async", [&] { exchange.dispatch_async(round.in); });
    refuses("dispatch_wait", [&] { exchange.dispatch_wait(round.out); });
    refuses("dispatch", [&] { exchange.dispatch(round.in, round.out); });
    refuses("wait_for_counts", [&] { exchange.wait_for_counts(); });
    refuses("combine_async", [&] { exchange.combine_async(round.combine_in); });
    refuses("combine_wait", [&] { exchange.combine_wait(round.combine_out); });
    refuses("combine", [&] { exchange.combine(round.combine_in, round.combine_out); });
    refuses("add_to_mask", [&] { exchange.add_to_mask(RankMask(kSharingRanks)); });
    if (world.capabilities().release) refuses("release", [&] { exchange.release(); });
    refuses("restore", [&] { exchange.restore(); });
    exchange.check();
    expect_equal(rank, "Stats::dispatches", 1, exchange.stats().dispatches);
    run_round(other, scenario, Form::split);
    exchange.take_memory();
    refuses("the other one's dispatch", [&] { other.dispatch(round.in, round.out); });
    run_round(exchange, scenario, Form::split);
  });
}

// Half done on one rank, or on all: no rank's memory changes hands, and all are told which rank it was.
void half_done(const Target& target) {
  const Scenario scenario = sharing_scenario(kLargeMemory, "bf16", Reduction::by_rank, 67);
  with_sharing(target, kSharingRanks, "take_memory from an exchange that is half done", [&](World& world) {
    const int rank = world.rank();
    Exchange exchange = make_alone(world, scenario);
    Exchange other = make_in(exchange, scenario);
    RankRound round(scenario, rank);
    other.dispatch_async(round.in);
    if (rank != 1) other.dispatch_wait(round.out);
    const auto refuses = [&](const std::vector<std::string>& fragments) {
      expect_error(rank, "take_memory", ErrorKind::out_of_order, fragments, [&] { exchange.take_memory(); });
      expect_error(rank, "an exchange in its memory", ErrorKind::out_of_order, fragments,
                   [&] { const Exchange third = make_in(other, scenario); });
    };
    refuses({"rank 1", "take_memory", "dispatch_wait"});
    other.take_memory();  // it has the memory: nothing happens
    if (rank == 1) other.dispatch_wait(round.out);
    round.check_rows();
    other.combine_async(round.combine_in);
    refuses({"take_memory", "combine_wait"});
    other.combine_wait(round.combine_out);
    round.check_tokens();
    exchange.take_memory();
    run_round(exchange, scenario, Form::split);
  });
}

// Exchanges that cannot lie in the memory of another one: all ranks are told why, and the memory stays as it was.
void refused(const Target& target) {
  const Scenario large = sharing_scenario(kLargeMemory, "bf16", Reduction::by_rank, 68);
  const Scenario small = sharing_scenario(kSmallMemory, "bf16", Reduction::by_rank, 69);
  with_sharing(target, kSharingRanks, "exchanges that cannot lie in the memory of another one", [&](World& world) {
    const int rank = world.rank();
    Exchange exchange = make_alone(world, small);
    const auto refuses = [&](const std::vector<std::string>& fragments, const Scenario& scenario,
                             const ExchangeOptions& options) {
      expect_error(rank, "an exchange in the memory of another one", ErrorKind::invalid_argument, fragments,
                   [&] { const Exchange other(exchange, scenario.settings.shape, options); });
    };
    const bool has_remote_ranks = world.capabilities().remote_ranks;
    const auto bytes_of = [&](const Scenario& scenario) {
      return std::to_string(memory_use(scenario.settings.shape, scenario.settings.options, has_remote_ranks).total);
    };
    refuses({"make the larger exchange first", bytes_of(large), bytes_of(small)}, large, large.settings.options);
    ExchangeOptions skips = small.settings.options;
    skips.skip_a2a = true;
    refuses({"skip_a2a"}, small, skips);
    expect_error(rank, "an exchange in the memory of another one", ErrorKind::invalid_argument,
                 {"the exchange whose memory it shares", "on rank 1"},
                 [&] { const Exchange other = rank == 1 ? make_alone(world, small) : make_in(exchange, small); });
    run_round(exchange, small, Form::split);
    ExchangeOptions masks = small.settings.options;
    masks.mask = RankMask(kSharingRanks);
    masks.mask[2] = true;
    if (rank != 2) refuses({"mask names rank 2"}, small, masks);
  });
}

}  // namespace

void add_shared_memory_cases(Cases& cases) {
  for (const Reduction reduction : {Reduction::by_rank, Reduction::exact}) {
    const std::string name = to_string(reduction);
    cases.push_back({"shared_memory/rounds_" + name, "rounds of exchanges that share a memory", true,
                     [reduction](const Target& target) { rounds(target, reduction, false); }});
    cases.push_back({"shared_memory/kept_" + name, "handles and open rounds while another exchange has the memory",
                     true, [reduction](const Target& target) { kept(target, reduction); }});
  }
  cases.push_back({"shared_memory/skip_a2a", "exchanges that share a memory and send nothing", true,
                   [](const Target& target) { rounds(target, Reduction::by_rank, true); }});
  cases.push_back({"shared_memory/without_memory", "calls of an exchange without the memory", true, without_memory});
  cases.push_back({"shared_memory/half_done", "take_memory from an exchange that is half done", true, half_done});
  cases.push_back({"shared_memory/refused", "exchanges that cannot lie in the memory of another one", true, refused});
  add_shared_memory_end_cases(cases);
}

}  // namespace ferry::conformance
