// Finds a rank that gave its newest call another handle or reduction than this rank gave, as a host reads it (I22). The
// call words lie in device memory, and peers may still write to them. So the copy is on a stream of its own that waits
// for no kernel.
#pragma once

#include "cuda/exchange/plan/round_masks.h"
#include "ferry/detail/cuda/state/device_state.h"
#include "ferry/detail/layout/other_handle.h"

namespace ferry::cuda {

// The device of `links` is current.
OtherHandle read_other_handle(const PeerLinks& links, const RoundMasks& masks);

}  // namespace ferry::cuda
