// MoreOutputs: what a call enqueues where its caller asked for outputs beside the usual ones, and what the host learns
// where a dispatch left usual ones out.
#pragma once

#include "cuda/exchange/state/exchange_state.h"
#include "exchange/calls/call_order.h"

namespace ferry::cuda {

class MoreOutputs {
 public:
  explicit MoreOutputs(const ExchangeState& state);

  // Ahead of the half of a dispatch that receives, and of the kernel of a combine that sums.
  void note_waiting_times(const RowsOut& out) const;
  void note_waits_for_results(const CombineOut& out) const;
  // Behind them. What writes rows and counts is added to what is left of a dispatch. Behind that come messages, and
  // what forgets rows without room.
  void add_rows(const Ticket& ticket, const RowsOut& out, FinishParams& left) const;
  void launch_last(const RowsOut& out, const FinishParams& left) const;
  void add_waits_for_results(const CombineOut& out, bool is_extra) const;

  // The end of the rows of the newest dispatch, whose kernels are done; not by_source.
  std::uint32_t laid_out_rows(cudaStream_t stream) const;

 private:
  void copy_waits(std::uint64_t* to) const;

  const ExchangeState& state_;
  std::uint64_t* waited_before_;       // [ranks]: PeerLinks::waited_ns when the newest receiving half began
  std::uint64_t* waited_before_sums_;  // the same of a combine
  std::uint32_t* message_counts_;      // [ranks, message_chunks]
};

}  // namespace ferry::cuda
