// Kinds of worlds, and what a world of threads can do.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "ferry/world.h"

namespace ferry {
namespace {

TEST(WorldKind, HasANameOfItsOwn) {
  std::set<std::string> names;
  for (const WorldKind kind : {WorldKind::threads, WorldKind::shmem, WorldKind::cuda, WorldKind::cuda_processes,
                               WorldKind::nvshmem, WorldKind::other})
    names.insert(to_string(kind));
  EXPECT_EQ(names.size(), 6u);
  EXPECT_TRUE(is_of_gpus(WorldKind::cuda) && is_of_gpus(WorldKind::cuda_processes) && is_of_gpus(WorldKind::nvshmem));
  EXPECT_FALSE(is_of_gpus(WorldKind::threads) || is_of_gpus(WorldKind::shmem) || is_of_gpus(WorldKind::other));
}

TEST(WorldKind, ThreadsTakeHostMemoryAndFunctions) {
  const auto worlds = make_thread_worlds(2);
  EXPECT_EQ(worlds[1]->kind(), WorldKind::threads);
  EXPECT_STREQ(worlds[1]->backend(), "cpu");
  const WorldCapabilities can = worlds[1]->capabilities();
  EXPECT_FALSE(can.device_memory);
  EXPECT_FALSE(can.remote_ranks);
  EXPECT_TRUE(can.skip_a2a);
  EXPECT_TRUE(can.function_hooks);
  EXPECT_FALSE(can.compiled_hooks);
  EXPECT_FALSE(can.gpus);
}

}  // namespace
}  // namespace ferry
