// CombineOrder: which number a combine has, and whether it waits for those before it, from the calls that the host saw.
// And which dispatch it follows, by which the device finds out that a graph was replayed since.
// The host sees a captured call once, at its capture, and none of the replays. So once a call was captured it knows
// only what lies in the capture of the newest dispatch. Otherwise a combine waits, and the device finds its number.
#pragma once

#include <cstdint>

#include "cuda/exchange/order/stream_order.h"
#include "ferry/detail/cuda/state/kernel_params.h"

namespace ferry::cuda {

class CombineOrder {
 public:
  struct Start {
    CombineNumber number = CombineNumber::of_dispatch;
    bool waits = false;
  };

  // A dispatch, or its first half, was enqueued; and its second half.
  void begin_dispatch(CaptureId capture, bool is_half);
  void end_dispatch() { dispatch_is_half_ = false; }

  // The host's number of the dispatch that begins now, which the device keeps; and of the newest one, which the device
  // must have kept when a call follows it. 0: one of them is captured, and the host does not know.
  std::uint32_t number_dispatch(CaptureId capture);
  std::uint32_t dispatch_number(CaptureId capture) const { return capture == kNoCapture ? dispatch_number_ : 0; }

  // Dispatches after this one, and combines after it, have done nothing (refused_dispatch.cuh).
  struct DoneNothing {
    std::uint32_t dispatches = 0;
    bool half_combine = false;  // the first half of a combine with a handle, which has had no second half
  };
  // `refused`: the number of that dispatch; 0: it was captured, and the host does not know what came after it.
  DoneNothing give_up_since(std::uint32_t refused);

  // A combine began since the newest dispatch began, or was half done then.
  bool has_combined() const { return has_combined_; }
  bool was_captured() const { return was_captured_; }                             // some dispatch or combine
  bool dispatch_was_captured() const { return dispatch_capture_ != kNoCapture; }  // the newest one

  // How the next combine begins. `is_told`: it tells the other ranks what it was given (LeftRouting::is_told).
  // `is_kept`: that is a handle.
  Start next_combine(CaptureId capture, bool is_told, bool is_kept) const;
  // That combine, or its first half, was enqueued; and its second half.
  void begin_combine(CaptureId capture, bool is_kept, bool is_half);
  void end_combine() { combine_is_half_ = false; }

 private:
  std::uint32_t dispatches_ = 0;             // that were not captured
  std::uint32_t dispatch_number_ = 0;        // of the newest one; 0: it was captured
  CaptureId dispatch_capture_ = kNoCapture;  // of the newest dispatch
  bool dispatch_is_half_ = false;
  bool combine_is_half_ = false;    // of one with a handle
  std::uint32_t half_follows_ = 0;  // dispatches_ when it began, less one that was half done
  bool has_combined_ = false;
  bool was_captured_ = false;  // some dispatch or combine
  bool kept_was_captured_ = false;
};

}  // namespace ferry::cuda
