// CudaExchange: the exchange of a GPU rank whose peers' memory it maps. It checks what the caller gives, keeps the
// round's state, and enqueues one kernel per call, or two (store_scales).
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "cuda/exchange/round_masks.h"
#include "cuda/policy/problem.h"
#include "cuda/world/device_memory.h"
#include "exchange/exchange_backend.h"
#include "exchange/round_state.h"
#include "exchange/sizes.h"
#include "exchange/validate.h"
#include "ferry/detail/cuda/kernels/launch.h"

namespace ferry::cuda {

// All ranks' symmetric memory as this rank's device reaches it, in rank order; null for masked ranks. I16: every rank
// holds the memory of all, whoever allocated it.
using DeviceHeaps = std::vector<std::shared_ptr<std::byte>>;

// A rank's device, and how many ranks of the world share it: each gets its part of the multiprocessors.
struct DevicePlace {
  int device = 0;
  int ranks = 1;
  std::shared_ptr<DeferredFree>
      deferred_free{};  // where GPUs are shared by ranks of one process; all of them have the same
};

class CudaExchange final : public ExchangeBackend {
 public:
  CudaExchange(const DevicePlace& place, int rank, const Shape& shape, const ExchangeOptions& options,
               const HeapMap& map, const Launchers& launchers, DeviceHeaps heaps);
  ~CudaExchange() override;

  void dispatch_async(const DispatchInput& in, const CallOptions& call) override;
  void dispatch_wait(const DispatchOutput& out, const CallOptions& call) override;
  void dispatch(const DispatchInput& in, const DispatchOutput& out, const CallOptions& call) override;
  void combine_async(const CombineInput& in, const CallOptions& call) override;
  void combine_wait(const CombineOutput& out, const CallOptions& call) override;
  void combine(const CombineInput& in, const CombineOutput& out, const CallOptions& call) override;
  void check() override;
  void add_to_mask(const RankMask& mask) override;

  const Shape& shape() const override { return shape_; }
  const ExchangeOptions& options() const override { return options_; }
  const RowLayout& layout() const override { return layout_; }
  int rank() const override { return rank_; }
  std::size_t memory_bytes() const override { return plan_.map.total(); }
  Stats stats() const override;

  const DevicePlace& place() const { return place_; }
  const RoundState& round() const { return round_; }

 private:
  void plan_memory(const HeapMap& map);
  void prepare_kernels();
  CheckContext context() const { return {rank_, shape_, options_, layout_}; }
  void begin(const CallOptions& call);
  void require_own_stream(cudaStream_t stream) const;
  int find_culprit() const;
  // I11: the mask of a round is the one at its dispatch.
  struct Round {
    int num_tokens = 0;
    TokenRange shared{0, 0};
    const std::uint8_t* masked = nullptr;
  };
  Round round_of(const DispatchArgs& args) const {
    return {args.num_tokens, {args.shared_begin, args.shared_end}, masks_.newest()};
  }
  template <class Params, class In, class Out>
  Params params_of(const Round& round, const In* in, const Out* out) const;
  void require_on_device(const char* name, const void* pointer) const;
  void refuse_pointer(const char* name, bool given) const;
  void require_inputs(const DispatchInput& in) const;
  void require_outputs(const DispatchOutput& out) const;
  DispatchArgs check_input(const DispatchInput& in);
  CombineArgs check_rows(const CombineInput& in) const;
  CombineOut check_sums(const CombineOutput& out) const;
  void run_dispatch(const Round& round, const DispatchArgs* in, const RowsOut* out, const CallOptions& call);
  void store_scales(const RowsOut& out, const CallOptions& call) const;
  void run_combine(const CombineArgs* in, const CombineOut* out, const CallOptions& call);
  // Of all experts, those of this world: with skip_a2a it is this rank alone.
  double local_part() const { return static_cast<double>(plan_.shape.experts) / shape_.experts; }
  // How many messages come, if the others have as many tokens as this rank.
  int likely_arrivals(const Round& round) const {
    return round.num_tokens * std::min(plan_.shape.ranks, plan_.shape.top_k);
  }
  static constexpr int kLeastBlocks = 3;  // of a kernel: its roles
  int most_blocks(int blocks_per_multiprocessor) const;
  DeviceLimits limits(int blocks_per_multiprocessor, const CallOptions& call) const;

  DevicePlace place_;
  int rank_;
  Shape shape_;
  ExchangeOptions options_;
  RowLayout layout_;
  Plan plan_;
  DeviceHeaps heaps_;
  PeerLinks links_;
  DispatchHandle handle_;
  RoutingArgs routing_;
  StatsWords stats_;
  DeviceWord<std::uint64_t>* waited_ns_ = nullptr;
  std::shared_ptr<DeviceMemory> memory_;  // state, masks, counters and row starts
  std::shared_ptr<PinnedMemory> record_memory_;
  HostRecord* record_ = nullptr;
  const DispatchLauncher* dispatch_launcher_ = nullptr;
  CombineLauncher combine_launcher_;
  DeviceEvent stream_probe_;
  int multiprocessors_ = 0;
  int dispatch_blocks_per_multiprocessor_ = 0;
  int combine_blocks_per_multiprocessor_ = 0;
  int scales_blocks_per_multiprocessor_ = 0;
  bool has_pipeline_ = false;     // combine can take rows by way of shared memory
  bool can_pair_blocks_ = false;  // two blocks of dispatch can be one thread block
  RoundMasks masks_;
  RoundState round_;
  Round open_;  // the newest that was dispatched
  CombineArgs returning_;
};

}  // namespace ferry::cuda
