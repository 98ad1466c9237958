// A rank of emulated GPUs as its user has it: a stream and an exchange, and calls on tensors in memory of its GPU.
#pragma once

#include <gtest/gtest.h>

#include "conformance/rounds/rank_round.h"
#include "ferry/cuda/cuda_world.h"
#include "gpu/device_round.h"
#include "gpu/stream.h"
#include "support/emulated_gpu/gpus.h"
#include "support/emulated_gpu/machine.h"

namespace ferry::test {

// No kernel may have failed.
class EmulatedGpus : public testing::Test {
 protected:
  void SetUp() override {
    emulated::set_gpus({});
    emulated::reset({});
  }
  void TearDown() override {
    EXPECT_EQ(emulated::failure(), "");
    emulated::reset({});  // tests that run on GPUs, too, know nothing of its settings
  }
};

struct DeviceRank {
  DeviceRank(World& world, const conformance::Scenario& scenario)
      : stream(world.rank()),
        call{.stream = stream.get()},
        exchange(world, scenario.settings.shape, scenario.settings.options) {
    cuda::cuda_check(cudaSetDevice(world.rank()), "cudaSetDevice");
  }
  void check_rows(DeviceRound& round) {
    if (round.in.row_order == RowOrder::in_place) round.save_slots(exchange.arrival_slots(), stream.get());
    round.fetch();
    exchange.check();
    round.host.check_rows();
  }
  Stream stream;
  CallOptions call;
  Exchange exchange;
};

}  // namespace ferry::test
