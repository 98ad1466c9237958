// KeptCall: what a CPU rank keeps of the handle of a call under way: a plan with the mask of that call, and copies of
// all that says where rows lie. So between two halves the caller's memory cannot change them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "cpu/rows/kept_source_rows.h"
#include "cpu/steps/lookup/handle_lookup.h"
#include "cpu/steps/lookup/row_room.h"
#include "cpu/steps/packed_results.h"
#include "ferry/detail/protocol/contracts/handle.h"
#include "ferry/detail/protocol/step.h"
#include "ferry/row_order.h"

namespace ferry::cpu {

class KeptCall {
 public:
  // `handle` is checked (check_handle).
  KeptCall(const Plan& plan, const std::byte* handle)
      : plan_(plan),
        kept_(kept_routing_at(plan, handle)),
        mask_of_handle_(kept_.masked, kept_.masked + plan.shape.ranks),
        mask_of_call_(mask_of_handle_),
        words_(kept_.starts.of_source, kept_.starts.of_source + row_start_words(plan)),
        starts_(row_starts_at(plan, words_.data())),
        row_room_(kept_.header->row_room - 1) {
    plan_.masked = mask_of_call_.data();
    plan_.packed = nullptr;
    if (kept_.header->order == static_cast<std::int32_t>(RowOrder::by_source))
      source_rows_.emplace(plan_, lookup(), starts_);
  }
  KeptCall(const KeptCall&) = delete;
  KeptCall& operator=(const KeptCall&) = delete;

  // I11: the mask of this call, to which that of the handle is added.
  void set_mask(const std::vector<std::uint8_t>& mask) {
    for (std::size_t peer = 0; peer < mask_of_call_.size(); ++peer)
      mask_of_call_[peer] = mask[peer] != 0 || mask_of_handle_[peer] != 0 ? 1 : 0;
  }
  void take_reduction(bool exact) { plan_.exact = exact; }
  // I9: for a combine where some ranks are reached by puts only.
  void number_slots() {
    packed_.emplace(plan_).number_slots(plan_, lookup(), starts_, kept_.results_before);
    packed_slots_ = packed_->slots();
    plan_.packed = &packed_slots_;
  }

  const Plan& plan() const { return plan_; }
  const RowStarts& starts() const { return starts_; }
  HandleLookup lookup() const { return {&kept_}; }
  // The room in the outputs of the handle's dispatch.
  RowRoom room() const { return {row_room_}; }
  // Empty, unless the rows of the handle's dispatch are by_source.
  SourceRows source_rows() const { return source_rows_ ? source_rows_->rows() : SourceRows{}; }
  bool is_newly_masked(int peer) const {
    return plan_.is_masked(peer) && mask_of_handle_[static_cast<std::size_t>(peer)] == 0;
  }

 private:
  Plan plan_;
  KeptRouting kept_;
  std::vector<std::uint8_t> mask_of_handle_;
  std::vector<std::uint8_t> mask_of_call_;
  std::vector<std::uint32_t> words_;
  RowStarts starts_;
  std::uint32_t row_room_;
  std::optional<KeptSourceRows> source_rows_;
  std::optional<PackedResults> packed_;
  PackedSlots packed_slots_{};
};

}  // namespace ferry::cpu
