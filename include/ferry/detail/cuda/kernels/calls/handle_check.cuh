// What a kernel checks of a told call before the call moves anything: that its handle is of this exchange, shape and
// mask (I17), and that every rank gave the handle of the same dispatch, and the same reduction (I22).
#pragma once

#include <cstddef>
#include <cstdint>

#include "ferry/detail/cuda/fabric/device_fabric.h"
#include "ferry/detail/cuda/fabric/other_handles.cuh"
#include "ferry/detail/cuda/kernels/calls/call_fault.cuh"
#include "ferry/detail/cuda/state/kernel_params.h"
#include "ferry/detail/cuda/team/ptx.cuh"
#include "ferry/detail/cuda/team/team_group.cuh"
#include "ferry/detail/layout/call_word.h"
#include "ferry/detail/protocol/contracts/handle.h"

namespace ferry::cuda {

// A combine takes the rows of any order that its exchange may have: their numbers are in the handle. by_source is not
// among them where every row is a result. Weights that go home have another shape there.
__device__ inline bool may_be_combined(const HandleCheck& c, const Plan& plan, const HandleHeader& h) {
  constexpr auto kBySource = static_cast<std::int32_t>(RowOrder::by_source);
  if (c.wants_order && (h.order == kBySource) != (c.wanted.order == kBySource)) return false;
  if (h.order == kBySource) return plan.map.has_token_lists();
  return h.order >= 0 && h.order < kRowOrders;
}

// I17, for handles in device memory. `h` says what the handle is.
__device__ inline HandleFault find_handle_fault(const HandleCheck& c, const Plan& plan, const HandleHeader& h) {
  const HandleHeader& w = c.wanted;
  if (h.magic != w.magic)
    return {HandleField::first_word, static_cast<std::int64_t>(h.magic), static_cast<std::int64_t>(w.magic)};
  HandleFault fault;
  const auto compare = [&](HandleField field, std::int32_t value, std::int32_t wanted) {
    if (fault.field == HandleField::none && value != wanted) fault = {field, value, wanted};
  };
  for_each_shape_field([&](HandleField field, const char*, std::int32_t HandleHeader::*member) {
    if (field == HandleField::order && c.operation == Operation::combine && may_be_combined(c, plan, h)) return;
    compare(field, h.*member, w.*member);
  });
  if (w.num_tokens >= 0) compare(HandleField::num_tokens, h.num_tokens, w.num_tokens);
  const auto order = static_cast<RowOrder>(w.order);
  const bool aligns_rows = order == RowOrder::by_expert || order == RowOrder::in_place;
  const bool is_aligned = h.alignment >= w.alignment && (h.alignment & (h.alignment - 1)) == 0;  // powers of two
  if (c.operation == Operation::dispatch && aligns_rows && !is_aligned)
    compare(HandleField::alignment, h.alignment, w.alignment);
  if (!c.may_lack_rows && h.row_room != 0 && fault.field == HandleField::none)
    return {HandleField::row_room, std::int64_t{h.row_room} - 1, 0};
  if (c.operation == Operation::dispatch && !c.may_be_by_counts) compare(HandleField::by_counts, h.by_counts, 0);
  const std::int32_t by_source = h.order == static_cast<std::int32_t>(RowOrder::by_source) ? 1 : 0;
  if (c.chose_exact) compare(HandleField::exact_by_source, by_source, 0);
  if (c.gives_weights) {
    compare(HandleField::weights_by_source, by_source, 0);
    compare(HandleField::weights, h.has_weights, 0);
  }
  return fault;
}

// Whether the mask of this call has all of the mask of the handle's dispatch, for the peers of this lane. It may have
// grown since (I11).
__device__ inline bool has_older_mask(const HandleCheck& c, const Plan& plan, int lane) {
  const std::uint8_t* masked = kept_routing_at(plan, c.handle).masked;
  bool older = true;
#pragma unroll 1
  for (int peer = lane; peer < plan.shape.ranks; peer += 32)
    older = older && (masked[peer] == 0 || plan.is_masked(peer));
  return older;
}

// I22: what this rank says of the call of that number that begins now. `routing`: of its handle, or of the newest
// dispatch.
__device__ inline CallWords words_of_call(const HandleCheck& c, Epoch number, Epoch routing) {
  const std::uint32_t mark = routing_mark(routing, c.handle != nullptr) ^ (c.chose_exact ? kMarkOfExact : 0);
  const Epoch word = call_word(number, mark);
  return c.operation == Operation::dispatch ? CallWords{word, 0} : CallWords{0, word};
}
// Nothing waits for the word, so it needs no order. A warp calls it.
template <DeviceFabric F>
__device__ void say_call(const Plan& plan, const PeerLinks& links, const CallWords& words, int lane) {
  const Epoch word = words.dispatching | words.combining;  // one of the two is 0
  if (word == 0) return;
  const std::size_t at = words.combining == 0 ? plan.map.dispatching(plan.rank) : plan.map.combining(plan.rank);
  const typename F::Reach reach(links);
#pragma unroll 1
  for (int peer = lane; peer < plan.shape.ranks; peer += 32)
    if (!plan.is_masked(peer)) reach.signal_without_order(peer, at, word);
}

// A warp ends the exchange for what is wrong with the handle. False: something is.
template <DeviceFabric F>
__device__ bool is_good_handle(const HandleCheck& c, const Plan& plan, const PeerLinks& links,
                               const HandleHeader& header, bool has_older_mask) {
  HandleFault fault = find_handle_fault(c, plan, header);
  if (__all_sync(kAllLanes, has_older_mask) == 0 && fault.field == HandleField::none) fault = {HandleField::mask, 0, 1};
  if (fault.field == HandleField::none) return true;
  if (threadIdx.x % 32 == 0) end_for_fault<F>(links, c.operation, fault);
  return false;
}

// ---- in a kernel that carries tokens. Not inlined: other calls of these kernels have no handle.

// A warp: what check_handle and tell_call load, on its way to the multiprocessor.
__device__ inline void prefetch_header(const HandleCheck& c, int lane) {
  constexpr int kLine = 128;  // the mask lies in the second
  if (c.handle != nullptr && lane < 2) ptx::prefetch_to_l1(c.handle + lane * kLine);
}
// The words of a header, of four bytes, that say of which exchange and call a handle is: a bit for each. The others say
// what its dispatch brought.
FERRY_HD constexpr std::uint32_t identity_words() {
  constexpr auto kWord = [](std::size_t at) { return 1u << at / 4; };
  constexpr auto kEnd = offsetof(HandleHeader, reserved) / 4;
  return ((1u << kEnd) - 1) & ~(kWord(offsetof(HandleHeader, routing)) | kWord(offsetof(HandleHeader, routing) + 4) |
                                kWord(offsetof(HandleHeader, num_rows)) | kWord(offsetof(HandleHeader, shared_begin)) |
                                kWord(offsetof(HandleHeader, shared_end)) | kWord(offsetof(HandleHeader, has_weights)));
}
// A warp: whether the header says what is wanted word for word, and its dispatch had no mask. Then the handle is good,
// and the kernel need not load the code of check_handle.
static __device__ __noinline__ bool is_as_wanted(const HandleCheck& c, const Plan& plan, int lane) {
  const auto* words = reinterpret_cast<const std::uint32_t*>(c.handle);
  const auto* wanted = reinterpret_cast<const std::uint32_t*>(&c.wanted);
  bool same = (identity_words() >> lane & 1u) == 0 || words[lane] == wanted[lane];
  const std::uint8_t* masked = kept_routing_at(plan, c.handle).masked;
  for (int peer = lane; peer < plan.shape.ranks; peer += 32) same = same && masked[peer] == 0;
  return __all_sync(kAllLanes, same) != 0;
}
template <DeviceFabric F>
__device__ __noinline__ bool check_handle(const HandleCheck& c, const Plan& plan, const PeerLinks& links) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const HandleHeader header = *kept_routing_at(plan, c.handle).header;
  return is_good_handle<F>(c, plan, links, header, has_older_mask(c, plan, lane));
}
// A warp of the rank, once in a call, before the rank publishes anything of it: compares what the others said (I22),
// and then says what this rank's call is. So another rank that has ended this call has the word, and finds it when it
// looks in its next call. Where another handle was given it ends the exchange, and every wait of the kernel sees that.
template <DeviceFabric F>
__device__ __noinline__ void tell_call(const HandleCheck& c, const Plan& plan, const PeerLinks& links, Epoch number) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const CallComparison calls(links, lane);
  const CallWords next = words_of_call(c, number, kept_routing_at(plan, c.handle).header->routing);
  F::Waits::end_for_other_handle(links, calls.with(next));  // it has looked: its branch needs what was loaded
  say_call<F>(plan, links, next, lane);
}

}  // namespace ferry::cuda
