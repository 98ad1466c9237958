#include "cuda/exchange/order/combine_order.h"

namespace ferry::cuda {

std::uint32_t CombineOrder::number_dispatch(CaptureId capture) {
  if (capture == kNoCapture && ++dispatches_ == 0) ++dispatches_;
  dispatch_number_ = capture == kNoCapture ? dispatches_ : 0;
  return dispatch_number_;
}

void CombineOrder::begin_dispatch(CaptureId capture, bool is_half) {
  has_combined_ = combine_is_half_;
  dispatch_is_half_ = is_half;
  dispatch_capture_ = capture;
  was_captured_ = was_captured_ || capture != kNoCapture;
}

// I8: a complete dispatch has seen every rank begin it, after the combines before. If the last call was not a complete
// dispatch, or a graph may have been replayed since, combine asks every rank.
// A combine that is told to the other ranks always has a number of its own. Another one has the number of its dispatch,
// unless another combine came between. All ranks find the same number, whether or not they captured the call. A rank
// that uses the number of its dispatch must not ask: the other ranks may not answer.
CombineOrder::Start CombineOrder::next_combine(CaptureId capture, bool is_told, bool is_kept) const {
  const bool is_in_capture_of_dispatch = capture != kNoCapture && capture == dispatch_capture_;
  const bool sees_all = is_in_capture_of_dispatch || !(was_captured_ || capture != kNoCapture);
  if (is_kept) return {CombineNumber::own, has_combined_ || dispatch_is_half_ || !sees_all};
  if (has_combined_) return {CombineNumber::own, true};
  const bool may_follow_another = capture == kNoCapture ? kept_was_captured_ : !is_in_capture_of_dispatch;
  if (is_told) return {CombineNumber::own, may_follow_another};
  if (may_follow_another) return {CombineNumber::found, true};
  return {};
}

void CombineOrder::begin_combine(CaptureId capture, bool is_kept, bool is_half) {
  has_combined_ = true;
  if (is_kept && is_half) half_follows_ = dispatches_ - (dispatch_is_half_ ? 1 : 0);
  combine_is_half_ = combine_is_half_ || (is_kept && is_half);
  was_captured_ = was_captured_ || capture != kNoCapture;
  kept_was_captured_ = kept_was_captured_ || (is_kept && capture != kNoCapture);
}

CombineOrder::DoneNothing CombineOrder::give_up_since(std::uint32_t refused) {
  const std::uint32_t since = refused == 0 ? 0 : dispatches_ - refused;
  const bool half = combine_is_half_ && (refused == 0 || dispatches_ - half_follows_ <= since);
  dispatch_is_half_ = false;
  combine_is_half_ = combine_is_half_ && !half;
  return {since, half};
}

}  // namespace ferry::cuda
