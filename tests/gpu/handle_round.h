// A rank of GPUs with an exchange, handles on its GPU, and rounds with them, for tests that call as its users do.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "cuda/device/device_memory.h"
#include "ferry/detail/cuda/state/cuda_check.h"
#include "gpu/device_round.h"
#include "gpu/few_gpus.h"
#include "gpu/stream.h"

namespace ferry::test {

// One rank's handle on its GPU.
class Handle {
 public:
  explicit Handle(const Exchange& exchange) : Handle(exchange.layout().handle_bytes) {}
  explicit Handle(std::int64_t bytes) : bytes_(bytes), memory_(make()), elsewhere_(make()), host_(size()) {}
  Tensor tensor() const { return {memory_->data(), DType::u8, {bytes_}}; }
  // The handle lies elsewhere after this, and where it lay are other bytes.
  void move(cudaStream_t stream) {
    fetch(stream);
    cuda::cuda_check(cudaMemcpyAsync(elsewhere_->data(), host_.data(), host_.size(), cudaMemcpyHostToDevice, stream),
                     "cudaMemcpyAsync");
    cuda::cuda_check(cudaMemsetAsync(memory_->data(), 0xa5, host_.size(), stream), "cudaMemsetAsync");
    cuda::cuda_check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    memory_.swap(elsewhere_);
  }
  void spoil(std::size_t at, cudaStream_t stream) {
    fetch(stream);
    host_[at] ^= std::byte{0x40};
    cuda::cuda_check(cudaMemcpyAsync(memory_->data(), host_.data(), host_.size(), cudaMemcpyHostToDevice, stream),
                     "cudaMemcpyAsync");
    cuda::cuda_check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  }

 private:
  std::size_t size() const { return static_cast<std::size_t>(bytes_); }
  std::unique_ptr<cuda::DeviceMemory> make() const { return std::make_unique<cuda::DeviceMemory>(size()); }
  void fetch(cudaStream_t stream) {
    cuda::cuda_check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    cuda::cuda_check(cudaMemcpyAsync(host_.data(), memory_->data(), host_.size(), cudaMemcpyDeviceToHost, stream),
                     "cudaMemcpyAsync");
    cuda::cuda_check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  }

  std::int64_t bytes_;
  std::unique_ptr<cuda::DeviceMemory> memory_;
  std::unique_ptr<cuda::DeviceMemory> elsewhere_;
  std::vector<std::byte> host_;
};

// A round with a handle, in memory of its own.
struct HandleRound : DeviceRound {
  HandleRound(const conformance::Scenario& scenario, int rank) : DeviceRound(scenario, rank) {}
  DispatchInput replayed(const Handle& handle) const {
    DispatchInput given = in;
    given.topk_ids = given.in_rank = given.expert_counts = {};
    given.topk_weights = {};
    given.handle = handle.tensor();
    return given;
  }
  DispatchOutput leaving(const Handle& handle) const {
    DispatchOutput left = out;
    left.handle = handle.tensor();
    return left;
  }
  CombineInput returned(const Handle& handle) const {
    CombineInput given = combine_in;
    given.handle = handle.tensor();
    return given;
  }
};

struct HandleRank {
  HandleRank(World& of_rank, const conformance::Scenario& first)
      : world(of_rank),
        device(of_rank.rank() / ranks_per_gpu(first.settings.shape.ranks)),
        stream(device),
        call{.stream = stream},
        exchange(of_rank, first.settings.shape, first.settings.options) {
    cuda::cuda_check(cudaSetDevice(device), "cudaSetDevice");
    do_first_work();
  }
  void keep(HandleRound& round, const Handle& handle) {
    round.reset(stream.get());
    exchange.dispatch(round.in, round.leaving(handle), call);
    check_rows(round);
  }
  void replay(HandleRound& round, const Handle& handle) {
    round.reset(stream.get());
    exchange.dispatch(round.replayed(handle), round.out, call);
    check_rows(round);
  }
  void combine(HandleRound& round, const Handle& handle, bool split = false) {
    round.reset(stream.get());
    if (split) {
      exchange.combine_async(round.returned(handle), call);
      exchange.combine_wait(round.combine_out, call);
    } else {
      exchange.combine(round.returned(handle), round.combine_out, call);
    }
    check_tokens(round);
  }
  void combine_newest(HandleRound& round) {
    round.reset(stream.get());
    exchange.combine(round.combine_in, round.combine_out, call);
    check_tokens(round);
  }
  void wait() const { cuda::cuda_check(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize"); }
  // A wait that failed is thrown before bytes are compared.
  void check_rows(HandleRound& round) {
    round.fetch(stream.get());
    exchange.check();
    round.host.check_rows();
  }
  void check_tokens(HandleRound& round) {
    round.fetch(stream.get());
    exchange.check();
    round.host.check_tokens();
  }

  World& world;
  int device;
  Stream stream;
  CallOptions call;
  Exchange exchange;

 private:
  // CUDA may wait for all kernels of a device when a stream gets its first work, and kernels of ranks that share the
  // GPU wait for each other. Tests have a barrier before their first call.
  void do_first_work() const {
    const cuda::DeviceMemory memory(sizeof device);
    cuda::cuda_check(cudaMemcpyAsync(memory.data(), &device, sizeof device, cudaMemcpyHostToDevice, stream.get()),
                     "cudaMemcpyAsync");
    wait();
  }
};

}  // namespace ferry::test
