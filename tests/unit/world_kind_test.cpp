// Kinds of worlds, and what those of threads and of GPUs can do.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "cuda/world/gpu_capabilities.h"
#include "ferry/world.h"

namespace ferry {
namespace {

TEST(WorldKind, HasANameOfItsOwn) {
  std::set<std::string> names;
  for (const WorldKind kind : {WorldKind::threads, WorldKind::shmem, WorldKind::cuda, WorldKind::cuda_processes,
                               WorldKind::nvshmem, WorldKind::processes, WorldKind::other})
    names.insert(to_string(kind));
  EXPECT_EQ(names.size(), 7u);
  EXPECT_TRUE(is_of_gpus(WorldKind::cuda) && is_of_gpus(WorldKind::cuda_processes) && is_of_gpus(WorldKind::nvshmem));
  EXPECT_FALSE(is_of_gpus(WorldKind::threads) || is_of_gpus(WorldKind::processes) || is_of_gpus(WorldKind::shmem) ||
               is_of_gpus(WorldKind::other));
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

TEST(WorldKind, GpusReachedByPutsCanDoWhatOthersCan) {
  for (const bool staged : {false, true}) {
    const WorldCapabilities near = cuda::gpu_capabilities({.staged = staged});
    const WorldCapabilities far = cuda::gpu_capabilities({.staged = staged, .remote_ranks = true});
    EXPECT_TRUE(near.gpus && far.gpus);
    EXPECT_TRUE(!near.remote_ranks && far.remote_ranks);
    EXPECT_TRUE(near.device_memory == !staged && near.function_hooks == staged);
    for (const auto can : {&WorldCapabilities::handles, &WorldCapabilities::asked_counts,
                           &WorldCapabilities::result_formats, &WorldCapabilities::more_outputs})
      EXPECT_EQ(far.*can, near.*can);
    EXPECT_TRUE(near.row_orders.has(RowOrder::in_place));
    EXPECT_EQ(far.row_orders, near.row_orders);
  }
}

}  // namespace
}  // namespace ferry
