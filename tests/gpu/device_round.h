// DeviceRound: a RankRound's tensors in memory of the current GPU, for tests that call an exchange as its users do.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <span>
#include <vector>

#include "conformance/rounds/rank_round.h"
#include "cuda/device/device_memory.h"
#include "ferry/detail/cuda/launch/launch.h"
#include "ferry/detail/cuda/state/cuda_check.h"

namespace ferry::test {

class DeviceRound {
 public:
  DeviceRound(const conformance::Scenario& scenario, int rank) : host(scenario, rank) {
    in = host.in;
    out = host.out;
    combine_in = host.combine_in;
    combine_out = host.combine_out;
    in.tokens.data = input(host.tokens);
    if (in.token_scales) in.token_scales.data = input(host.token_scales);
    if (in.token_global_scales) in.token_global_scales.data = input(std::as_bytes(std::span(host.token_global_scales)));
    if (in.topk_ids || !in.expert_counts) in.topk_ids.data = input(host.topk_ids);
    if (in.in_rank) in.in_rank.data = input(host.in_rank);
    if (in.expert_counts) {
      const auto* counts = in.expert_counts.as<std::byte>();
      in.expert_counts.data = input({counts, static_cast<std::size_t>(in.expert_counts.elements()) * 4});
    }
    if (in.topk_weights) in.topk_weights.data = input(host.weights);
    combine_in.rows.data = input(host.rows);
    if (combine_in.topk_weights) combine_in.topk_weights.data = input(host.weights);
    if (const ConstTensor given = combine_in.row_topk_weights)
      combine_in.row_topk_weights.data = input({given.as<std::byte>(), static_cast<std::size_t>(given.elements()) * 4});
    if (combine_out.topk_weights) combine_out.topk_weights.data = output(host.returned);
    for (int i = 0; i < kMaxBias; ++i)
      if (combine_in.bias[i]) combine_in.bias[i].data = input(host.bias[i]);
    if (out.payload) out.payload.data = output(host.payload);
    if (out.scales) out.scales.data = output(host.scales);
    if (out.row_offsets) out.row_offsets.data = output(host.row_offsets);
    if (out.expert_ids) out.expert_ids.data = output(host.expert_ids);
    if (out.src_info.rank != 0) out.src_info.data = output(host.src_info);
    if (out.counts) out.counts.data = output(host.counts);
    if (out.row_topk_ids) out.row_topk_ids.data = output(host.row_topk_ids);
    if (out.row_topk_weights) out.row_topk_weights.data = output(host.row_topk_weights);
    if (out.source_offsets) out.source_offsets.data = output(host.source_offsets);
    if (out.global_scales) out.global_scales.data = output(host.global_scales);
    if (out.gather) out.gather.data = output(host.gather);
    if (out.scales_offsets) out.scales_offsets.data = output(host.scales_offsets);
    if (host.more() != nullptr)
      for (const conformance::MoreOutputs::Memory& memory : host.more()->memory())
        (out.*memory.field).data = output(memory.bytes);
    combine_in.src_info = {};
    combine_out.tokens.data = output(host.output);
    cuda::cuda_check(cudaStreamSynchronize(cudaStreamLegacy), "cudaStreamSynchronize");  // other streams do not wait
  }

  // in_place: keeps what the slots hold, in stream order, since the next dispatch overwrites it.
  void save_slots(const ArrivalSlots& slots, cudaStream_t stream) {
    const auto bytes =
        static_cast<std::size_t>(slots.payload.shape[0] * slots.payload.strides[0]) * size_of(slots.payload.dtype);
    slots_.resize(bytes / sizeof slots_[0] + 1);
    saved_ = slots;
    saved_.payload.data = slots_.data();
    if (slots.scales)
      saved_.scales.data = reinterpret_cast<const std::byte*>(slots_.data()) +
                           (slots.scales.as<std::byte>() - slots.payload.as<std::byte>());
    if (slots.global_scales)
      saved_.global_scales.data = reinterpret_cast<const std::byte*>(slots_.data()) +
                                  (slots.global_scales.as<std::byte>() - slots.payload.as<std::byte>());
    copy(slots_.data(), slots.payload.data, bytes, cudaMemcpyDeviceToHost, stream);
  }

  // Brings the outputs to the host; then host.check_rows() and host.check_tokens() compare them.
  void fetch() {
    cuda::cuda_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    for (const Output& output : outputs_)
      cuda::cuda_check(cudaMemcpy(output.host.data(), output.device, output.host.size(), cudaMemcpyDeviceToHost),
                       "cudaMemcpy");
    if (saved_.payload) host.read_slots(saved_);
  }
  // The same, and waits for `stream` only: kernels of other ranks on the device may still wait for this one.
  void fetch(cudaStream_t stream) {
    wait(stream);
    for (const Output& output : outputs_)
      copy(output.host.data(), output.device, output.host.size(), cudaMemcpyDeviceToHost, stream);
    wait(stream);
  }
  // Throws Failure unless all inputs are as they were: for tests that do not write to them. No kernel may run.
  void check_inputs(int rank) const {
    for (const Input& given : inputs_) {
      std::vector<std::byte> now(given.bytes.size());
      cuda::cuda_check(cudaMemcpy(now.data(), given.device, now.size(), cudaMemcpyDeviceToHost), "cudaMemcpy");
      if (now != given.bytes) throw conformance::Failure(rank, "an input of a call", "its bytes", "others");
    }
  }
  // Puts the poison back into the outputs, so that the round can be run once more. Waits for `stream` only.
  void reset(cudaStream_t stream) {
    wait(stream);
    for (const Output& output : outputs_)
      copy(output.device, output.poison.data(), output.poison.size(), cudaMemcpyHostToDevice, stream);
    wait(stream);
  }

  conformance::RankRound host;
  DispatchInput in;
  DispatchOutput out;
  CombineInput combine_in;
  CombineOutput combine_out;

 private:
  std::byte* copy(std::span<const std::byte> bytes) {
    memory_.push_back(std::make_unique<cuda::DeviceMemory>(bytes.size() + 256));
    cuda::cuda_check(cudaMemcpy(memory_.back()->data(), bytes.data(), bytes.size(), cudaMemcpyHostToDevice),
                     "cudaMemcpy");
    return memory_.back()->data();
  }
  std::byte* input(std::span<const std::byte> bytes) {
    std::byte* device = copy(bytes);
    inputs_.push_back({{bytes.begin(), bytes.end()}, device});
    return device;
  }
  std::byte* output(std::span<std::byte> bytes) {
    std::byte* device = copy(bytes);
    outputs_.push_back({bytes, device, {bytes.begin(), bytes.end()}});
    return device;
  }
  static void copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
    if (bytes != 0) cuda::cuda_check(cudaMemcpyAsync(to, from, bytes, kind, stream), "cudaMemcpyAsync");
  }
  static void wait(cudaStream_t stream) { cuda::cuda_check(cudaStreamSynchronize(stream), "cudaStreamSynchronize"); }

  struct Input {
    std::vector<std::byte> bytes;
    const std::byte* device;
  };
  struct Output {
    std::span<std::byte> host;
    std::byte* device;
    std::vector<std::byte> poison;
  };
  std::vector<std::unique_ptr<cuda::DeviceMemory>> memory_;
  std::vector<Input> inputs_;
  std::vector<Output> outputs_;
  std::vector<std::max_align_t> slots_;
  ArrivalSlots saved_;
};

}  // namespace ferry::test
