// CudaSteps: the steps of an exchange on a GPU. Each call enqueues the kernel that carries its tokens. The scales
// kernel follows a large dispatch. Small kernels come before or behind the carrier:
//   kept_calls.cpp   calls with handles
//   count_calls.cpp  dispatches whose host asks what comes
//   more_rows.cpp    dispatches with extra outputs
//   given_counts.cpp dispatches by counts
//   weights.cpp      weights that are not f32, late weights, and returned weights; the check of a combine's input
//   combine_types.cpp  combines of f16; the check of a combine's output
//   given_memory.cpp memory that is given back for a while
//   traced_kernels.cpp  small kernels around those that a Trace records
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "cuda/device/heap_memory.h"
#include "cuda/exchange/device_checks.h"
#include "cuda/exchange/kernel_trace.h"
#include "cuda/exchange/order/combine_order.h"
#include "cuda/exchange/order/count_box.h"
#include "cuda/exchange/order/record.h"
#include "cuda/exchange/order/stream_order.h"
#include "cuda/exchange/plan/format_plan.h"
#include "cuda/exchange/plan/round_masks.h"
#include "exchange/exchange_steps.h"
#include "ferry/detail/cuda/launch/launch.h"

namespace ferry::cuda {

class CudaSteps final : public ExchangeSteps {
 public:
  // `device` must be current.
  CudaSteps(const RankDevice& device, int rank, const Shape& shape, const ExchangeOptions& options, const HeapMap& map,
            const Launchers& launchers, GpuHeaps heaps);
  ~CudaSteps() override;

  void enter() override { scope_.emplace(device_.index); }
  void leave() noexcept override { scope_.reset(); }
  void trace_to(CallTrace* call) override;
  void set_hooks(const HookBytes& hooks) override;
  void start(const CallOptions& call, std::chrono::milliseconds deadline) override;

  void take_format(int format) override;
  void check_dispatch_input(const CheckContext&, const DispatchInput& in, DispatchArgs& args) override;
  void check_rows(const CheckContext& context, const DispatchOutput& out) override { checks_.check_rows(context, out); }
  void check_combine_input(const CheckContext&, const Ticket&, const CombineInput& in,
                           const CombineArgs& args) override;
  void check_sums(const CheckContext&, const Ticket& ticket, const CombineOutput& out, const CombineOut& sums) override;

  // The kernels read handles, so the host knows nothing of them.
  std::optional<HandleFacts> read_handle(const CheckContext&, const std::byte*, Operation) override { return {}; }
  void require_handles(const CheckContext&) override {}
  const std::byte* arrival_slots() const override { return links_.own + plan_.map.begin(HeapMap::kMessages); }

  void send(const Ticket& ticket, const DispatchArgs& args) override;
  void receive(const Ticket& ticket, const RowsOut& rows) override;
  std::int64_t await_counts(const Ticket& ticket) override;
  RowCounts row_counts(const Ticket& ticket) const override;
  void send_back(const Ticket& ticket, const CombineArgs& args) override;
  void reduce(const Ticket& ticket, const CombineArgs& sent, const CombineOut& sums) override;
  bool fuses_halves() const override { return true; }
  void dispatch(const Ticket& ticket, const DispatchArgs& args, const RowsOut& rows) override;
  void combine(const Ticket& ticket, const CombineArgs& args, const CombineOut& sums) override;

  void poll() override;
  // The same, except overflow: only check() reports it.
  void poll_calls();
  void tell_aborted(int missing) override;
  void tell_left(const CallOrder& order) override;
  void set_mask(const RankMask& mask) override { masks_.add(mask); }
  // Exchange::release and restore (given_memory.cpp):
  void require_can_release() const override;
  void finish_calls() override;
  void give_back(const RankMask& mask) override;
  void take_again(const RankMask& mask, std::chrono::milliseconds deadline) override;
  void bring_words_back() override;
  std::size_t given_back() const override { return has_heaps_ ? 0 : plan_.map.total(); }
  Stats stats() const override;

  // Rows, bias and sums of types that these kernels know (I17).
  void check_types_in(const CombineArgs& args) const;
  void check_types_out(const CombineOut& sums) const { require_f16(sums.dtype == DType::f16, "tokens"); }

  // The end of the rows of the newest dispatch, whose kernels are done; not by_source (more_rows.cpp).
  std::uint32_t laid_out_rows(cudaStream_t stream) const;

  const RankDevice& device() const { return device_; }
  const Plan& plan() const { return plan_; }

 private:
  const FormatPlan& now() const { return formats_[format_]; }
  // Whether rows or bias, or sums where `out` is given, are f16 (combine_types.cpp).
  static bool has_f16(const CombineArgs& in, const CombineOut* out);
  void require_f16(bool wanted, const char* name) const;
  void plan_memory();
  void tell_all(Epoch word) const;
  void set_links(DeviceState* state, std::byte** more_heaps);
  template <class Params>
  Params params_of(const std::uint8_t* masked, Halves halves) const;
  // With the kernels that record it, where a Trace does (traced_kernels.cpp).
  void run_dispatch(const Ticket& ticket, const std::uint8_t* masked, const DispatchArgs* in, const RowsOut* out);
  void run_combine(const Ticket& ticket, Halves halves, const CombineArgs& in, const CombineOut* out);
  void begin_record(TracedKernelKind kind);
  void end_record(TracedKernelKind kind);
  TraceParams trace_params(TracedKernelKind kind) const;
  void enqueue_dispatch(const Ticket& ticket, const std::uint8_t* masked, const DispatchArgs* in, const RowsOut* out);
  void enqueue_combine(const Ticket& ticket, Halves halves, const CombineArgs& in, const CombineOut* out);
  void launch_scales_kernel(const RowsOut& out) const;
  // I15: rows by_source need the lists and wait for them in the kernel that lays them out.
  void await_lists(const DispatchParams& params, const RowsOut& out) const;
  // Dispatches whose host asks what comes (count_calls.cpp):
  bool has_excess(int num_tokens) const { return num_tokens > plan_.shape.max_tokens; }
  void send_excess(const Ticket& ticket);
  // Dispatches with extra outputs (more_rows.cpp):
  void note_waiting_times(const RowsOut& out);
  void write_more_rows(const Ticket& ticket, const RowsOut& out) const;
  void write_asked_rows(const Ticket& ticket, const RowsOut& out) const;
  void note_overflow(const RowsOut& out);
  void send_zero_results(const Ticket& ticket) const;
  bool may_lack_rows(const Ticket& ticket) const;
  // Dispatches by counts (given_counts.cpp):
  void give_counts(const DispatchArgs& args, DispatchArgs& routed) const;
  void take_counts(const Ticket& ticket, const RowsOut& out) const;
  // Weights that are not f32, late weights, and returned weights (weights.cpp):
  Weights widened(const Weights& weights, int num_tokens) const;
  void weigh(const Ticket& ticket, const CombineArgs& args) const;
  ReturnedParams returned_params(const Ticket& ticket) const;
  void return_weights(const Ticket& ticket, const CombineArgs& args) const;
  void sum_returned(const Ticket& ticket, const CombineOut& sums) const;
  // Calls with handles (kept_calls.cpp):
  DispatchArgs begin_dispatch(const Ticket& ticket, const DispatchArgs& args);
  void keep_routing(const Ticket& ticket, const RowsOut& out) const;
  void begin_combine(const Ticket& ticket, const CombineArgs& args);
  void launch_handle_call(const HandleCallParams& params);
  void note_room(const RowsOut& out) const;
  void fit_rows(const Ticket& ticket) const;
  const HandleRow* kept_rows_of(const Ticket& ticket) const;
  HandleCallParams handle_call(Operation operation, const Ticket& ticket) const;
  // What a combine goes by: of its handle, or of the newest dispatch. Null: the table of the newest routing.
  ArrivedRows arrived_of(const Ticket& ticket) const;
  const RoutingEntry* own_table_of(const Ticket& ticket) const;

  RankDevice device_;
  int rank_;
  int num_experts_;                       // ids are below it
  std::int64_t min_row_capacity_ = 0;     // enough for any dispatch
  std::vector<std::uint64_t> row_bytes_;  // [formats]
  Plan plan_;                             // with the map and the alignment of the newest dispatch's format
  GpuHeaps heaps_;
  std::vector<FormatPlan> formats_;
  std::size_t format_ = 0;  // of the newest dispatch
  DeviceChecks checks_;
  StreamOrder streams_;
  const RankMask masked_at_start_;  // ranks that do not share this exchange
  Record record_;
  CountBox counts_;
  mutable std::mutex heaps_guard_;  // an abort, from any thread, reads what these two say
  bool has_heaps_ = true;
  std::vector<std::byte> words_;          // all but slots of the own heap, while there is none
  std::shared_ptr<DeviceMemory> memory_;  // state, masks, counters and row starts
  PeerLinks links_;
  ArrivedRows arrived_;
  DeviceWord<Epoch>* block_counts_ = nullptr;
  StatsWords stats_;                               // `received`: those of the newest dispatch's format
  DeviceWord<std::uint64_t>* received_ = nullptr;  // [formats, ranks, local experts]
  std::uint64_t* waited_before_ = nullptr;         // [ranks]: links_.waited_ns when the newest receiving half began
  std::uint32_t* message_counts_ = nullptr;        // [ranks, message_chunks]
  float* wide_weights_ = nullptr;                  // [max_tokens, top_k]: of the newest kernel that needs them
  HandleRow* combined_rows_ = nullptr;             // as arrived_.rows: with late weights, or those of a handle that fit
  std::int32_t* destination_ids_ = nullptr;        // [max_tokens, top_k]: of the newest dispatch by counts
  RowStartsToFill fitting_starts_;                 // of the handle of the newest combine that may lack rows
  RoundMasks masks_;
  const std::uint8_t* open_mask_ = nullptr;  // I11: of the newest dispatch
  HandleHeader header_;                      // of a handle, but for what its dispatch was
  CombineOrder order_;
  bool may_have_overflowed_ = false;           // rows of the newest dispatch
  bool graphs_may_overflow_ = false;           // rows of a captured one, which may run when the host does not know
  bool is_extra_ = false;                      // begin_handle_kernel found the number of the newest combine
  std::size_t trace_at_;                       // the TraceRecords in memory_
  std::shared_ptr<KernelTrace> kernel_trace_;  // from the first call on that a Trace records
  bool records_ = false;                       // the call under way
  cudaStream_t stream_ = nullptr;              // of the call under way
  int max_blocks_ = 0;                         // of the call under way
  int given_tokens_ = 0;                       // rows of topk_weights of the combine under way
  std::optional<DeviceScope> scope_;           // from enter() to leave()
};

}  // namespace ferry::cuda
