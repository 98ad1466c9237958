// Memory that an exchange gives back: the system really has it again, and it comes again when it is written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <span>

#include "conformance/rounds/rank_round.h"
#include "cpu/fabric/shared_heap.h"
#include "exchange/sizes/heap_pieces.h"
#include "exchange/sizes/sizes.h"

namespace ferry {
namespace {

std::size_t page() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

// Of this process.
std::size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::size_t mapped = 0;
  std::size_t resident = 0;
  file >> mapped >> resident;
  return resident * page();
}

std::size_t allocated_bytes(const net::Descriptor& memory) {
  struct stat found {};
  EXPECT_EQ(fstat(memory.get(), &found), 0);
  return static_cast<std::size_t>(found.st_blocks) * 512;
}

bool are_all(std::span<const std::byte> bytes, std::byte value) {
  return std::all_of(bytes.begin(), bytes.end(), [value](std::byte each) { return each == value; });
}

TEST(HeapPieces, AreAllOfAHeapOnce) {
  const Shape shape{.ranks = 3, .experts = 7, .top_k = 3, .max_tokens = 20, .hidden = 96};
  for (const bool remote : {false, true}) {
    const HeapMap map = make_heap_map(shape, conformance::options_for("mxfp8"), 0, remote);
    std::vector<bool> covered(map.total());
    for (const bool slots : {false, true})
      for (const HeapPiece& piece : heap_pieces(map, slots))
        for (std::size_t at = piece.begin; at < piece.begin + piece.bytes; ++at) {
          EXPECT_FALSE(covered[at]);
          covered[at] = true;
        }
    EXPECT_TRUE(std::all_of(covered.begin(), covered.end(), [](bool each) { return each; }));
  }
}

TEST(SharedHeap, GivesWholePagesBackForAllWhoMapIt) {
  const std::size_t bytes = 64 * page();
  const net::Descriptor memory = cpu::make_shared_memory(bytes);
  const auto mine = cpu::map_shared_memory(memory, bytes);
  const auto theirs = cpu::map_shared_memory(memory, bytes);
  std::fill_n(theirs->data(), bytes, std::byte{7});
  EXPECT_GE(allocated_bytes(memory), bytes);

  const std::size_t begin = page() + 100;
  const std::size_t end = 50 * page() + 1;
  EXPECT_EQ(mine->give_back(begin, end - begin), 48 * page());
  EXPECT_LE(allocated_bytes(memory), bytes - 48 * page());
  const std::span<const std::byte> seen(theirs->data(), bytes);
  EXPECT_TRUE(are_all(seen.first(2 * page()), std::byte{7}));
  EXPECT_TRUE(are_all(seen.subspan(2 * page(), 48 * page()), std::byte{0}));
  EXPECT_TRUE(are_all(seen.subspan(50 * page()), std::byte{7}));
  theirs->data()[10 * page()] = std::byte{9};
  EXPECT_EQ(mine->data()[10 * page()], std::byte{9});
}

TEST(Heap, GivesNothingBackWhereNoPageIsWhole) {
  cpu::Heap heap(4 * page());
  heap.data()[page()] = std::byte{5};
  EXPECT_EQ(heap.give_back(page() - 10, page()), 0u);
  EXPECT_EQ(heap.data()[page()], std::byte{5});
}

TEST(Release, GivesTheMemoryOfTheSlotsBackToTheSystem) {
  conformance::ScenarioSettings settings;
  settings.shape = {.ranks = 2, .experts = 4, .top_k = 2, .max_tokens = 1024, .hidden = 1024};
  settings.options = conformance::options_for("bf16");
  const conformance::Scenario scenario = conformance::make_scenario(settings);
  run_ranks(2, [&](World& world) {
    Exchange exchange(world, settings.shape, settings.options);
    for (int repeat = 0; repeat < 2; ++repeat) {
      conformance::run_round(exchange, scenario, conformance::Form::split);
      conformance::run_round(exchange, scenario, conformance::Form::split);  // the other copy
      world.barrier();
      const std::size_t before = resident_bytes();
      const std::size_t said_before = exchange.memory_bytes();
      exchange.release();
      const std::size_t given = 2 * (said_before - exchange.memory_bytes());  // of both ranks
      EXPECT_GT(given, 2 * said_before / 10 * 9);
      EXPECT_LT(resident_bytes(), before - given / 2);
      exchange.restore();
    }
  });
}

}  // namespace
}  // namespace ferry
