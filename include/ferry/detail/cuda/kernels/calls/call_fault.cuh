// What is wrong with a call that only a kernel can see, and how the kernel ends the exchange on all ranks for it.
#pragma once

#include <cstdint>

#include "ferry/detail/cuda/fabric/device_fabric.h"
#include "ferry/detail/cuda/kernels/calls/round_clock.cuh"
#include "ferry/detail/cuda/state/device_state.h"
#include "ferry/detail/layout/abort_word.h"
#include "ferry/detail/layout/handle_header.h"

namespace ferry::cuda {

struct HandleFault {
  HandleField field = HandleField::none;
  std::int64_t value = 0;
  std::int64_t wanted = 0;
};

// I10: ends the exchange on all ranks at once. The word says which field it was. One thread calls it. Not inlined: no
// round that goes well needs it.
template <DeviceFabric F>
__device__ __noinline__ void end_for_fault(const PeerLinks& links, Operation operation, HandleFault fault) {
  if (!F::Waits::is_first_to_end(links)) return;
  const auto field = static_cast<Epoch>(fault.field);
  links.record->wait = {.operation = operation,
                        .phase = Phase::handle,
                        .my_rank = links.rank,
                        .missing_rank = links.rank,
                        .reported_by = links.rank,
                        .epoch_wanted = field};
  links.record->handle_field = fault.field;
  links.record->handle_value = fault.value;
  links.record->handle_limit = fault.wanted;
  F::Waits::end_exchange(links, abort_word(field, false, links.rank) | kOtherRouting);
}

// For a block that may do nothing: kernels have stopped, or the newest dispatch is not the one that this call follows.
// Not inlined: no round that goes well needs it.
template <DeviceFabric F>
__device__ __noinline__ void tell_of_other_dispatch(const PeerLinks& links, Operation operation, std::uint32_t call) {
  if (threadIdx.x != 0 || links.state->has_stopped()) return;
  const std::uint32_t newest = load_relaxed(links.state->dispatch_call);
  if (is_of_other_dispatch(newest, call))
    end_for_fault<F>(links, operation, {HandleField::newest_dispatch, newest, call});
}

}  // namespace ferry::cuda
