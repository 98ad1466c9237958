// ExchangeState: what all steps of an exchange on a GPU share: its kernels and memory, the way to the other ranks, the
// masks, and the call under way. It fills what the parameters of all kernels have.
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "cuda/device/rank_device.h"
#include "cuda/exchange/order/record.h"
#include "cuda/exchange/plan/format_plan.h"
#include "cuda/exchange/plan/round_masks.h"
#include "cuda/exchange/plan/state_plan.h"
#include "ferry/detail/cuda/state/device_state.h"
#include "ferry/detail/cuda/state/kernel_params.h"
#include "ferry/exchange.h"

namespace ferry::cuda {

class ExchangeState {
 public:
  // `device` must be current. The caller keeps the heaps.
  ExchangeState(const RankDevice& device, int rank, const Shape& shape, const ExchangeOptions& options,
                const HeapMap& map, const Launchers& launchers, const DeviceHeaps& heaps);
  // Frees the memory later.
  void free_with(DeferredFree& deferred);

  void begin_call(const CallOptions& call, std::chrono::milliseconds deadline);
  void take_format(int format);
  void set_hooks(const HookBytes& hooks) { links_.hooks = hooks; }
  // I11: from the next dispatch on.
  void add_to_mask(const RankMask& mask) { masks_.add(mask); }
  // Of a dispatch, or of a call that follows one: DeviceState::dispatch_call; 0: the host does not know.
  void set_dispatch_call(std::uint32_t number) { dispatch_call_ = number; }
  // A dispatch has the mask until the next one.
  void open_mask(const std::uint8_t* masked) { open_mask_ = masked; }

  const RankDevice& device() const { return device_; }
  int rank() const { return rank_; }                // in the world
  int num_experts() const { return num_experts_; }  // ids are below it
  // With the map and the alignment of the newest dispatch's format.
  const Plan& plan() const { return plan_; }
  const FormatPlan& format() const { return formats_[format_]; }
  const ExchangeKernels& kernels() const { return format().kernels; }
  bool compares_scales() const { return plan_.map.has_input_scales() && plan_.shape.ranks > 1; }  // I26
  const PeerLinks& links() const { return links_; }
  const RoundMasks& masks() const { return masks_; }
  const std::uint8_t* mask_of_dispatch(bool is_replay) const {
    return is_replay ? masks_.newest_of_replays() : masks_.newest();
  }
  const std::uint8_t* opened_mask() const { return open_mask_; }  // I11: of the newest dispatch
  const ArrivedRows& arrived() const { return arrived_; }
  const StatsWords& counters() const { return counters_; }  // `received`: those of the newest dispatch's format
  Record& record() { return record_; }
  const Record& record() const { return record_; }

  // Memory of the device besides the symmetric memory, and where things lie in it.
  const std::shared_ptr<DeviceMemory>& memory() const { return memory_; }
  const StatePlan& state_plan() const { return state_plan_; }

  // Of the call under way:
  cudaStream_t stream() const { return stream_; }
  int max_blocks() const { return max_blocks_; }
  std::uint32_t dispatch_call() const { return dispatch_call_; }
  int most_small_blocks() const { return format().kernel_plan.most_small_blocks(max_blocks_); }
  bool kernels_are_exclusive() const { return format().kernel_plan.is_exclusive(); }

  // The parameter of a kernel that reaches other ranks or waits for them, in the round that has the mask. A captured
  // graph keeps its values of the capture.
  template <class Params>
  Params params_of(const std::uint8_t* masked) const {
    Params params;
    params.plan = plan_;
    params.links = links_;
    params.plan.masked = params.links.masked = masked;
    return params;
  }
  // The same for a kernel that only reads what has come to this rank.
  template <class Params>
  Params local_params_of(const std::uint8_t* masked) const {
    Params params;
    params.plan = plan_;
    params.plan.masked = masked;
    params.state = links_.state;
    params.heap = links_.own;
    return params;
  }

  // From any thread; they wait for no kernel:
  DeviceState read() const;
  void read_heap(std::size_t offset, void* to, std::size_t bytes) const;  // of this rank's symmetric memory
  Stats stats() const;

 private:
  void read_memory(const void* from, void* to, std::size_t bytes) const;
  void plan_memory();
  void set_links(const DeviceHeaps& heaps);

  RankDevice device_;
  int rank_;
  int num_experts_;
  std::vector<std::uint64_t> row_bytes_;  // [formats]
  Plan plan_;
  std::vector<FormatPlan> formats_;
  std::size_t format_ = 0;  // of the newest dispatch
  Record record_;
  StatePlan state_plan_;
  std::shared_ptr<DeviceMemory> memory_;
  PeerLinks links_;
  RoundMasks masks_;
  const std::uint8_t* open_mask_ = nullptr;
  ArrivedRows arrived_;
  StatsWords counters_;
  DeviceWord<std::uint64_t>* received_ = nullptr;  // [formats, ranks, local experts]
  cudaStream_t stream_ = nullptr;
  int max_blocks_ = 0;
  std::uint32_t dispatch_call_ = 0;
};

}  // namespace ferry::cuda
