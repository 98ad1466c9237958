// MoreOutputs: what a dispatch enqueues where its caller asked for outputs beside the usual ones, and what the host
// learns where it left usual ones out.
#pragma once

#include "cuda/exchange/state/exchange_state.h"
#include "exchange/calls/call_order.h"

namespace ferry::cuda {

class MoreOutputs {
 public:
  explicit MoreOutputs(const ExchangeState& state);

  // Ahead of the half that receives.
  void note_waiting_times(const RowsOut& out) const;
  // Behind it.
  void write(const Ticket& ticket, const RowsOut& out) const;

  // The end of the rows of the newest dispatch, whose kernels are done; not by_source.
  std::uint32_t laid_out_rows(cudaStream_t stream) const;

 private:
  const ExchangeState& state_;
  std::uint64_t* waited_before_;   // [ranks]: PeerLinks::waited_ns when the newest receiving half began
  std::uint32_t* message_counts_;  // [ranks, message_chunks]
};

}  // namespace ferry::cuda
