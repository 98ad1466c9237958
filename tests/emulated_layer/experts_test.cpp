// The experts of a layer on emulated GPUs: rows in every order and format, and the check's bound on what comes out.
#include <cublas_v2.h>
#include <gtest/gtest.h>

#include <cstring>

#include "ferry/cuda/cuda_world.h"
#include "support/emulated_gpu/gpus.h"
#include "support/layer_arrays.h"
#include "tool/layer/check/layer_check.h"
#include "tool/layer/cuda/cuda_experts.h"
#include "tool/layer/rows/rank_buffers.h"
#include "tool/ranks/cuda/gpu_calls.h"
#include "tool/ranks/gpus.h"

namespace ferry::test {
namespace {

using app::LayerOptions;

class EmulatedGpus final : public app::Gpus {
 public:
  std::string why_none() const override { return {}; }
  int count() const override { return 8; }
  std::vector<std::unique_ptr<World>> make_worlds(const std::vector<int>& devices, bool) const override {
    return make_cuda_worlds(devices);
  }
  std::unique_ptr<app::RankCalls> make_calls(int device, const Shape& shape, const RowLayout& layout,
                                             RowOrder order) const override {
    return app::make_gpu_calls(device, shape, layout, order);
  }
};

class ExpertsOnEmulatedGpus : public testing::Test {
 protected:
  ExpertsOnEmulatedGpus() {
    static const EmulatedGpus gpus;
    emulated::set_gpus({});
    emulated::reset({});
    app::set_gpus(gpus);
    app::gpu_expert_maker().make = app::make_cuda_experts;
  }

  static std::vector<float> run(const LayerArrays& arrays, const LayerOptions& options,
                                const app::RowsObserver& observer = {}) {
    std::vector<float> output(arrays.output_size());
    const app::Backend& backend = app::choose_backend("cuda", options.ranks);
    options.experts->require(backend);
    run_layer(backend.make(options.ranks), arrays.layer(), options, output.data(), {}, observer);
    EXPECT_EQ(emulated::failure(), "");
    return output;
  }
  static void expect_right(const LayerArrays& arrays, const LayerOptions& options) {
    const std::vector<float> output = run(arrays, options);
    const app::CheckResult result = check_layer(arrays.layer(), options, output.data(), app::OracleTokens::as_sent);
    EXPECT_TRUE(result.ok) << options.format.name() << " " << to_string(options.rows) << ": " << result.worst_share
                           << " at " << result.worst_token << ", " << result.worst_column;
    EXPECT_GT(result.worst_share, 0.005) << "the bound is loose";
  }
  static LayerOptions on_gpu(int ranks, const char* format = "bf16") {
    return {.ranks = ranks, .format = format_named(format), .experts = &app::gpu_experts()};
  }
};

TEST_F(ExpertsOnEmulatedGpus, AreRightInEveryFormat) {
  const LayerArrays arrays({.hidden = 160, .inter = 40}, 1);
  for (const AnyFormat& format : all_formats()) expect_right(arrays, on_gpu(3, format.name()));
}

TEST_F(ExpertsOnEmulatedGpus, AreRightInEveryRowOrder) {
  const LayerArrays arrays({.hidden = 288, .inter = 33}, 2);
  for (const AnyFormat& format : all_formats())
    for (const RowOrder rows : {RowOrder::padded, RowOrder::by_source}) {
      LayerOptions options = on_gpu(2, format.name());
      options.rows = rows;
      options.input_scale = 3.0f;
      expect_right(arrays, options);
    }
}

TEST_F(ExpertsOnEmulatedGpus, AreRightWithASharedExpertAndExactSums) {
  for (const int shared : {20, 70}) {
    const LayerArrays arrays({.tokens = 21, .hidden = 96, .inter = 48, .shared_inter = shared}, 3);
    for (const Reduction reduction : {Reduction::by_rank, Reduction::exact}) {
      LayerOptions options = on_gpu(3, "fp8_block128");
      options.reduction = reduction;
      expect_right(arrays, options);
    }
  }
}

// More columns than one part has, in both matrices, and a tail.
TEST_F(ExpertsOnEmulatedGpus, AreRightInSeveralParts) {
  expect_right(LayerArrays({.tokens = 12, .hidden = 544, .experts = 3, .inter = 300}, 4), on_gpu(2, "mxfp8"));
}

TEST_F(ExpertsOnEmulatedGpus, AreRightWithoutTokensOrRows) {
  LayerArrays arrays({.tokens = 5, .experts = 9}, 5);
  std::fill(arrays.ids.begin(), arrays.ids.end(), -1);
  for (const RowOrder rows : {RowOrder::by_expert, RowOrder::padded, RowOrder::by_source}) {
    LayerOptions options = on_gpu(4);
    options.rows = rows;
    for (const float value : run(arrays, options)) EXPECT_EQ(value, 0);
  }
  EXPECT_TRUE(run(LayerArrays({.tokens = 0}, 6), on_gpu(3)).empty());
  expect_right(LayerArrays({.tokens = 1}, 7), on_gpu(3));
}

TEST_F(ExpertsOnEmulatedGpus, GiveTheSameBytesAgain) {
  const LayerArrays arrays({}, 8);
  LayerOptions options = on_gpu(3, "nvfp4");
  const std::vector<float> once = run(arrays, options);
  EXPECT_EQ(std::memcmp(once.data(), run(arrays, options).data(), once.size() * sizeof(float)), 0);
  options.repeats = 2;
  EXPECT_EQ(std::memcmp(once.data(), run(arrays, options).data(), once.size() * sizeof(float)), 0);
}

// What is dumped is what came, whatever the experts do with it.
TEST_F(ExpertsOnEmulatedGpus, LeaveTheRowsForADump) {
  const LayerArrays arrays({}, 9);
  std::vector<std::vector<std::byte>> payloads;
  for (const app::ExpertPlace* place : {&app::cpu_experts(), &app::gpu_experts()}) {
    LayerOptions options = on_gpu(1, "fp8_block128");
    options.one_round = true;
    options.experts = place;
    run(arrays, options, [&](int, const app::RankRows& rows) {
      const std::int64_t bytes = std::int64_t{rows.row_offsets.back()} * rows.layout->payload_row_bytes;
      payloads.emplace_back(rows.payload, rows.payload + bytes);
    });
  }
  ASSERT_EQ(payloads.size(), 2);
  EXPECT_FALSE(payloads[0].empty());
  EXPECT_EQ(payloads[0], payloads[1]);
}

// NaN and infinity reach just the outputs that they reach on the host.
TEST_F(ExpertsOnEmulatedGpus, KeepWhatIsNotFinite) {
  LayerArrays arrays({.inter = 40}, 10);
  arrays.x[3 * 128 + 7] = std::numeric_limits<float>::infinity();
  arrays.x[5 * 128 + 9] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> output = run(arrays, on_gpu(2));
  EXPECT_TRUE(check_layer(arrays.layer(), on_gpu(2), output.data(), app::OracleTokens::as_sent).ok);
}

TEST_F(ExpertsOnEmulatedGpus, NameRankProductAndStatusOfAFailure) {
  emulated::set_cublas_status(1, CUBLAS_STATUS_EXECUTION_FAILED);
  try {
    run(LayerArrays({}, 11), on_gpu(3));
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::system);
    for (const char* words : {"rank 1: experts on GPU 1: ", "cublasGemmStridedBatchedEx of gate_up of local expert ",
                              "CUBLAS_STATUS_EXECUTION_FAILED", "--experts-on cpu"})
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
  }
  emulated::set_cublas_status(1, CUBLAS_STATUS_SUCCESS);
}

TEST_F(ExpertsOnEmulatedGpus, AreRefusedForOtherRanks) {
  EXPECT_THROW(app::gpu_experts().require(app::backend_named("cpu")), Error);
  app::gpu_expert_maker().make = nullptr;
  try {
    app::gpu_experts().require(app::backend_named("cuda"));
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unsupported);
    EXPECT_NE(std::string(error.what()).find("-DFERRY_CUBLAS=ON"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace ferry::test
