// The host's look at what ranks said of their input scales (I26). As in handle_compare.h, peers may still write.
#pragma once

#include "cuda/exchange/plan/round_masks.h"
#include "ferry/detail/cuda/state/device_state.h"
#include "ferry/detail/layout/heap_map.h"
#include "ferry/detail/layout/scale_word.h"

namespace ferry::cuda {

// In the newest dispatch in which one is known. Waits for no kernel. The device of `links` is current.
OtherScale read_other_scale(const PeerLinks& links, const HeapMap& map, const RoundMasks& masks);

}  // namespace ferry::cuda
