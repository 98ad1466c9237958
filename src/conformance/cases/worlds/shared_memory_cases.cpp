// Cases over exchanges that share one memory and are never open together: whoever has it, rounds give the bytes of the
// oracle, and what was kept stays good.
#include <chrono>
#include <iterator>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "conformance/cases/cases.h"
#include "conformance/rounds/handle_sequence.h"

namespace ferry::conformance {
namespace {

constexpr int kRanks = 3;
// The words of the first lie where the others have slots, and the other way round.
constexpr Shape kLarge{.ranks = kRanks, .experts = 10, .top_k = 4, .max_tokens = 16, .hidden = 512};
constexpr Shape kSmall{.ranks = kRanks, .experts = 7, .top_k = 3, .max_tokens = 9, .hidden = 64};
constexpr Shape kMiddle{.ranks = kRanks, .experts = 10, .top_k = 4, .max_tokens = 16, .hidden = 256};

Scenario scenario_of(const Shape& shape, const char* format, Reduction reduction, std::uint64_t seed,
                     const char* routing = "ragged", bool skips = false) {
  ScenarioSettings settings;
  settings.shape = shape;
  settings.options = options_for(format, reduction);
  settings.options.skip_a2a = skips;
  settings.seed = seed;
  settings.routing = routing;
  return make_scenario(settings);
}

Exchange make(World& world, const Scenario& scenario) {
  return {world, scenario.settings.shape, scenario.settings.options};
}
Exchange make_in(Exchange& memory_of, const Scenario& scenario) {
  return {memory_of, scenario.settings.shape, scenario.settings.options};
}

// Runs `body` on all ranks. Skipped where exchanges do not share memory: all ranks of a world agree on that.
void with_sharing(const Target& target, int ranks, const std::string& what, const std::function<void(World&)>& body) {
  on_ranks(target, ranks, what, [&](World& world) {
    if (!world.capabilities().shared_memory) throw Skipped("the exchanges of this world do not share memory");
    body(world);
  });
}

// Three exchanges, in an order in which each comes after each other one.
void rounds(const Target& target, Reduction reduction, bool skips) {
  const Reduction other = reduction == Reduction::exact ? Reduction::by_rank : Reduction::exact;
  const Scenario scenarios[] = {scenario_of(kLarge, "bf16", Reduction::exact, 60, "ragged", skips),
                                scenario_of(kSmall, "mxfp8", reduction, 61, "uniform", skips),
                                scenario_of(kMiddle, "nvfp4", other, 62, "empty_ranks", skips)};
  with_sharing(target, kRanks, "rounds of exchanges that share a memory", [&](World& world) {
    std::vector<Exchange> exchanges;
    exchanges.push_back(make(world, scenarios[0]));
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
  const Scenario first = scenario_of(kLarge, "mxfp8", reduction, 63);
  const Scenario second = scenario_of(kLarge, "mxfp8", reduction, 64, "some_none");
  const Scenario between = scenario_of(kMiddle, "bf16", reduction, 65);
  with_sharing(target, kRanks, "what is kept while another exchange has the memory", [&](World& world) {
    if (!world.capabilities().handles) throw Skipped("the exchanges of this world have no handles");
    Exchange exchange = make(world, first);
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

// What an exchange refuses that has not the memory.
void without_memory(const Target& target) {
  const Scenario scenario = scenario_of(kLarge, "bf16", Reduction::by_rank, 66);
  with_sharing(target, kRanks, "calls of an exchange that has not the memory", [&](World& world) {
    const int rank = world.rank();
    Exchange exchange = make(world, scenario);
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
    refuses("add_to_mask", [&] { exchange.add_to_mask(RankMask(kRanks)); });
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
  const Scenario scenario = scenario_of(kLarge, "bf16", Reduction::by_rank, 67);
  with_sharing(target, kRanks, "take_memory from an exchange that is half done", [&](World& world) {
    const int rank = world.rank();
    Exchange exchange = make(world, scenario);
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
  const Scenario large = scenario_of(kLarge, "bf16", Reduction::by_rank, 68);
  const Scenario small = scenario_of(kSmall, "bf16", Reduction::by_rank, 69);
  with_sharing(target, kRanks, "exchanges that cannot lie in the memory of another one", [&](World& world) {
    const int rank = world.rank();
    Exchange exchange = make(world, small);
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
                 [&] { const Exchange other = rank == 1 ? make(world, small) : make_in(exchange, small); });
    run_round(exchange, small, Form::split);
    ExchangeOptions masks = small.settings.options;
    masks.mask = RankMask(kRanks);
    masks.mask[2] = true;
    if (rank != 2) refuses({"mask names rank 2"}, small, masks);
  });
}

// Who is there goes on, in whichever order exchanges end, and a round is open that never ends: what an exchange does
// that has not the memory is seen by nobody.
void destroyed(const Target& target, bool oldest_first) {
  const Scenario scenario = scenario_of(kLarge, "mxfp8", Reduction::by_rank, 70);
  with_sharing(target, kRanks, "exchanges that end while others go on in their memory", [&](World& world) {
    const int rank = world.rank();
    std::optional<Exchange> first(make(world, scenario));
    std::optional<Exchange> second(make_in(*first, scenario));  // words at the same offsets
    Exchange third = make_in(*second, scenario);
    const std::size_t bytes = first->memory_bytes();
    first->take_memory();
    RankRound open(scenario, rank);
    run_dispatch(*first, open, Form::split);  // no combine follows
    second->take_memory();
    for (int repeat = 0; repeat < 3; ++repeat) run_round(*second, scenario, Form::split);
    world.barrier();
    if (rank == 1) {  // the others wait for it meanwhile
      first.reset();
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
    }
    run_round(*second, scenario, Form::split);
    if (oldest_first) {
      first.reset();
      expect_equal(rank, "memory_bytes() of the oldest that is there", bytes, second->memory_bytes());
    }
    second.reset();  // it had the memory
    third.take_memory();
    run_round(third, scenario, Form::split);
    first.reset();
    expect_equal(rank, "memory_bytes() of the last", bytes, third.memory_bytes());
    run_round(third, scenario, Form::one_call);
  });
}

// An exchange that has the memory may give it back for a while; the others take it when it is there again, or when that
// exchange is gone.
void released(const Target& target) {
  const Scenario scenario = scenario_of(kLarge, "mxfp8", Reduction::by_rank, 71);
  with_sharing(target, kRanks, "release and restore of a memory that exchanges share", [&](World& world) {
    if (!world.capabilities().release) throw Skipped("the exchanges of this world cannot give memory back");
    const int rank = world.rank();
    Exchange first = make(world, scenario);
    const std::size_t bytes = first.memory_bytes();
    run_round(first, scenario, Form::split);
    std::optional<Exchange> second(make_in(first, scenario));
    run_round(*second, scenario, Form::split);
    second->release();
    if (first.memory_bytes() >= bytes)
      throw Failure(rank, "memory_bytes() after release", "less than " + std::to_string(bytes),
                    std::to_string(first.memory_bytes()));
    expect_error(rank, "take_memory", ErrorKind::out_of_order, {"take_memory", "restore()"},
                 [&] { first.take_memory(); });
    second->restore();
    run_round(*second, scenario, Form::split);
    first.take_memory();
    run_round(first, scenario, Form::split);
    second->take_memory();
    second->release();
    second.reset();
    first.take_memory();
    expect_equal(rank, "memory_bytes() when it is there again", bytes, first.memory_bytes());
    run_round(first, scenario, Form::split);
  });
}

// A rank that does not come ends the exchange that would take the memory and the one that has it.
void lost(const Target& target) {
  if (!target.can_lose_ranks) throw Skipped("this backend cannot go on without a rank");
  const Scenario scenario = scenario_of(kSmall, "bf16", Reduction::by_rank, 72);
  with_sharing(target, kRanks, "take_memory without a rank", [&](World& world) {
    Exchange first = make(world, scenario);
    Exchange second = make_in(first, scenario);
    run_round(second, scenario, Form::split);
    if (world.rank() == 1) return;
    CallOptions hurried;
    hurried.deadline = std::chrono::milliseconds(200);
    for (Exchange* const each : {&first, &second, &first})
      expect_error(world.rank(), "take_memory", ErrorKind::peer_missing, {"rank 1"},
                   [&] { each->take_memory(hurried); });
    RankRound round(scenario, world.rank());
    expect_error(world.rank(), "dispatch", ErrorKind::peer_missing, {"rank 1"},
                 [&] { second.dispatch(round.in, round.out); });
  });
}

// The others masked a rank that left. It may still write to the memory as the exchange does that had it then: that one
// goes on, and no other one takes the memory.
void masked(const Target& target) {
  if (!target.can_lose_ranks) throw Skipped("this backend cannot go on without a rank");
  constexpr std::size_t kLost = 1;
  const Scenario all = scenario_of(kLarge, "mxfp8", Reduction::by_rank, 73, "uniform");
  ScenarioSettings settings = all.settings;
  settings.options.mask = RankMask(kRanks);
  settings.options.mask[kLost] = true;
  const Scenario survivors = make_scenario(settings);
  with_sharing(target, kRanks, "take_memory after a rank was masked", [&](World& world) {
    Exchange first = make(world, all);
    Exchange second = make_in(first, all);
    run_round(second, all, Form::split);
    if (world.rank() == static_cast<int>(kLost)) return;
    second.add_to_mask(settings.options.mask);
    for (int repeat = 0; repeat < 2; ++repeat) {
      expect_error(world.rank(), "take_memory", ErrorKind::out_of_order, {"take_memory", "rank 1 was masked"},
                   [&] { first.take_memory(); });
      run_round(second, survivors, Form::split);
    }
  });
}

// An exchange that has ended leaves the memory to the others.
void after_an_end(const Target& target) {
  const Scenario scenario = scenario_of(kSmall, "bf16", Reduction::by_rank, 74);
  with_sharing(target, kRanks, "take_memory from an exchange that has ended", [&](World& world) {
    Exchange first = make(world, scenario);
    run_round(first, scenario, Form::split);
    Exchange second = make_in(first, scenario);
    RankRound round(scenario, world.rank());
    CallOptions hurried;
    hurried.deadline = std::chrono::milliseconds(100);
    if (world.rank() != 1)
      expect_error(world.rank(), "dispatch", ErrorKind::peer_missing, {"rank 1"}, [&] {
        second.dispatch(round.in, round.out, hurried);
        if (second.takes_device_memory()) check_until_told(second);
      });
    world.barrier();
    first.take_memory();
    for (const Form form : {Form::split, Form::one_call}) run_round(first, scenario, form);
    expect_error(world.rank(), "take_memory", ErrorKind::peer_missing, {"rank 1"}, [&] { second.take_memory(); });
    run_round(first, scenario, Form::split);
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
  cases.push_back(
      {"shared_memory/without_memory", "calls of an exchange that has not the memory", true, without_memory});
  cases.push_back({"shared_memory/half_done", "take_memory from an exchange that is half done", true, half_done});
  cases.push_back({"shared_memory/refused", "exchanges that cannot lie in the memory of another one", true, refused});
  cases.push_back({"shared_memory/destroyed", "exchanges that end while others go on in their memory", true,
                   [](const Target& target) { destroyed(target, false); }});
  cases.push_back({"shared_memory/destroyed_oldest", "the same, the oldest of them first", true,
                   [](const Target& target) { destroyed(target, true); }});
  cases.push_back({"shared_memory/released", "release and restore of a memory that exchanges share", true, released});
  cases.push_back({"shared_memory/lost", "take_memory without a rank", true, lost});
  cases.push_back({"shared_memory/masked", "take_memory after a rank was masked", true, masked});
  cases.push_back({"shared_memory/ended", "take_memory from an exchange that has ended", true, after_an_end});
}

}  // namespace ferry::conformance
