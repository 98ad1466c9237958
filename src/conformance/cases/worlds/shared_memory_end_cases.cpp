// Cases over exchanges that share one memory, of which some end: destroyed, released, lost, masked.
#include <chrono>
#include <optional>
#include <thread>

#include "conformance/cases/worlds/shared_memory.h"
#include "conformance/rounds/handle_sequence.h"

namespace ferry::conformance {
namespace {

// The others go on, in whichever order exchanges end, also with a round open that never ends. What an exchange without
// the memory does is seen by nobody.
void destroyed(const Target& target, bool oldest_first) {
  const Scenario scenario = sharing_scenario(kLargeMemory, "mxfp8", Reduction::by_rank, 70);
  with_sharing(target, kSharingRanks, "exchanges that end while others go on in their memory", [&](World& world) {
    const int rank = world.rank();
    std::optional<Exchange> first(make_alone(world, scenario));
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
  const Scenario scenario = sharing_scenario(kLargeMemory, "mxfp8", Reduction::by_rank, 71);
  with_sharing(target, kSharingRanks, "release and restore of a memory that exchanges share", [&](World& world) {
    if (!world.capabilities().release) throw Skipped("the exchanges of this world cannot give memory back");
    const int rank = world.rank();
    Exchange first = make_alone(world, scenario);
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
  const Scenario scenario = sharing_scenario(kSmallMemory, "bf16", Reduction::by_rank, 72);
  with_sharing(target, kSharingRanks, "take_memory without a rank", [&](World& world) {
    Exchange first = make_alone(world, scenario);
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
  const Scenario all = sharing_scenario(kLargeMemory, "mxfp8", Reduction::by_rank, 73, "uniform");
  ScenarioSettings settings = all.settings;
  settings.options.mask = RankMask(kSharingRanks);
  settings.options.mask[kLost] = true;
  const Scenario survivors = make_scenario(settings);
  with_sharing(target, kSharingRanks, "take_memory after a rank was masked", [&](World& world) {
    Exchange first = make_alone(world, all);
    Exchange second = make_in(first, all);
    run_round(second, all, Form::split);
    if (world.rank() == static_cast<int>(kLost)) return;
    second.add_to_mask(settings.options.mask);
    for (int repeat = 0; repeat < 2; ++repeat) {
      expect_error(world.rank(), "take_memory", ErrorKind::out_of_order, {"take_memory", "rank 1 was masked"},
                   [&] { first.take_memory(); });
      expect_error(world.rank(), "an exchange in its memory", ErrorKind::out_of_order,
                   {"in the memory of another one", "rank 1 was masked"},
                   [&] { const Exchange third = make_in(second, repeat == 0 ? all : survivors); });
      run_round(second, survivors, Form::split);
    }
  });
}

// An exchange that has ended leaves the memory to the others.
void after_an_end(const Target& target) {
  const Scenario scenario = sharing_scenario(kSmallMemory, "bf16", Reduction::by_rank, 74);
  with_sharing(target, kSharingRanks, "take_memory from an exchange that has ended", [&](World& world) {
    Exchange first = make_alone(world, scenario);
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

// The exchange that has the memory is gone on some ranks, and on others it is there until they have given it up.
void destroyed_by_some(const Target& target) {
  const Scenario scenario = sharing_scenario(kSmallMemory, "mxfp8", Reduction::by_rank, 75);
  with_sharing(target, kSharingRanks, "an exchange that some ranks destroy ahead", [&](World& world) {
    const int rank = world.rank();
    Exchange first = make_alone(world, scenario);
    for (int repeat = 0; repeat < 3; ++repeat) {
      std::optional<Exchange> second(make_in(first, scenario));
      run_round(*second, scenario, Form::split);
      if (rank == repeat) second.reset();
      first.take_memory();
      run_round(first, scenario, Form::one_call);
      second.reset();
      run_round(first, scenario, Form::split);
    }
    std::optional<Exchange> second(make_in(first, scenario));
    if (rank == 1) second.reset();
    Exchange third = make_in(first, scenario);
    second.reset();
    run_round(third, scenario, Form::split);
  });
}

// It ends between release and restore: the memory comes again for the next one.
void ended_while_released(const Target& target) {
  if (!target.can_lose_ranks) throw Skipped("this backend cannot go on without a rank");
  const Scenario scenario = sharing_scenario(kSmallMemory, "bf16", Reduction::by_rank, 76);
  with_sharing(target, kSharingRanks, "an exchange that ends between release and restore", [&](World& world) {
    if (!world.capabilities().release) throw Skipped("the exchanges of this world cannot give memory back");
    const int rank = world.rank();
    Exchange first = make_alone(world, scenario);
    const std::size_t bytes = first.memory_bytes();
    Exchange second = make_in(first, scenario);
    run_round(second, scenario, Form::split);
    second.release();
    CallOptions hurried;
    hurried.deadline = std::chrono::milliseconds(200);
    if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(600));
    expect_error(rank, "restore", ErrorKind::peer_missing, {}, [&] { second.restore(hurried); });
    world.barrier();
    first.take_memory();
    expect_equal(rank, "memory_bytes() when it is there again", bytes, first.memory_bytes());
    for (const Form form : {Form::split, Form::one_call}) run_round(first, scenario, form);
  });
}

// A smaller exchange gives back all of the memory but its words.
void released_by_a_smaller(const Target& target) {
  const Scenario large = sharing_scenario({kSharingRanks, 10, 4, 256, 512}, "bf16", Reduction::by_rank, 77);
  const Scenario small = sharing_scenario(kSmallMemory, "bf16", Reduction::by_rank, 78);
  with_sharing(target, kSharingRanks, "a memory that a smaller exchange gives back", [&](World& world) {
    if (!world.capabilities().release) throw Skipped("the exchanges of this world cannot give memory back");
    Exchange first = make_alone(world, large);
    run_round(first, large, Form::split);
    first.release();
    const std::size_t left = first.memory_bytes();
    first.restore();
    Exchange second = make_in(first, small);
    run_round(second, small, Form::split);
    second.release();
    if (first.memory_bytes() > left)
      throw Failure(world.rank(), "memory_bytes() after the release of a smaller exchange",
                    "at most " + std::to_string(left), std::to_string(first.memory_bytes()));
    second.restore();
    run_round(second, small, Form::split);
    first.take_memory();
    run_round(first, large, Form::one_call);
  });
}

// With skip_a2a nothing is sent, so a rank that was masked writes nowhere. Masks of all exchanges add up.
void masked_alone(const Target& target) {
  if (!target.can_lose_ranks) throw Skipped("this backend cannot go on without a rank");
  const Scenario scenario = sharing_scenario(kSmallMemory, "bf16", Reduction::by_rank, 79, "ragged", true);
  with_sharing(target, kSharingRanks, "take_memory of replicated tokens after a rank was masked", [&](World& world) {
    Exchange first = make_alone(world, scenario);
    Exchange second = make_in(first, scenario);
    if (world.rank() == 2) return;
    RankMask mask(kSharingRanks);
    mask[2] = true;
    second.add_to_mask(mask);
    first.take_memory();
    first.add_to_mask(RankMask(kSharingRanks));
    second.take_memory();
    run_round(second, scenario, Form::split);
  });
}

}  // namespace

void add_shared_memory_end_cases(Cases& cases) {
  cases.push_back({"shared_memory/destroyed", "exchanges that end while others go on in their memory", true,
                   [](const Target& target) { destroyed(target, false); }});
  cases.push_back({"shared_memory/destroyed_oldest", "the same, the oldest of them first", true,
                   [](const Target& target) { destroyed(target, true); }});
  cases.push_back({"shared_memory/released", "release and restore of a memory that exchanges share", true, released});
  cases.push_back({"shared_memory/lost", "take_memory without a rank", true, lost});
  cases.push_back({"shared_memory/masked", "take_memory after a rank was masked", true, masked});
  cases.push_back({"shared_memory/ended", "take_memory from an exchange that has ended", true, after_an_end});
  cases.push_back(
      {"shared_memory/destroyed_by_some", "exchanges that some ranks destroy ahead", true, destroyed_by_some});
  cases.push_back({"shared_memory/ended_while_released", "an exchange that ends between release and restore", true,
                   ended_while_released});
  cases.push_back({"shared_memory/released_by_a_smaller", "a memory that a smaller exchange gives back", true,
                   released_by_a_smaller});
  cases.push_back(
      {"shared_memory/masked_alone", "take_memory of replicated tokens after a rank was masked", true, masked_alone});
}

}  // namespace ferry::conformance
