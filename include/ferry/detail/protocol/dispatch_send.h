// Dispatch, the sending side: one message for each token and rank. All backends run this text.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ferry/detail/protocol/step.h"

namespace ferry {

// What a send counted; the backend adds it up.
struct SendCounts {
  std::uint64_t non_finite = 0;
  std::uint64_t* messages = nullptr;  // [ranks]
  std::uint64_t* bytes = nullptr;     // [ranks]
};

// I5: a message is whole in its slot before `arrived` says so. A token is encoded once. CPU ranks encode it into
// `staging`; or, where some rank is reached by puts only, into the send buffer, which I1 keeps until it was read (I15).
// A GPU's fabric has a buffer in shared memory, and copies from there to the send buffer. The ranks come from the
// caller's ids, so no sender waits for the table.
template <SendStep S, TokenFormat Fmt, WorkShare<typename S::Group> Share>
FERRY_HD void send_tokens(const S& step, const Fmt& format, const DispatchArgs& in, Share share, std::byte* staging,
                          TokenScratch& scratch, SendCounts& counted) {
  const Plan& plan = step.plan;
  auto& fabric = step.fabric;
  const auto& g = step.group;
  const std::size_t payload_bytes = format.payload_bytes(plan.shape.hidden);
  const bool has_remote_ranks = plan.map.has_remote_ranks();
  NamedRanks& to = scratch.named;
  for (int token = share.index; token < in.num_tokens; token = share.next(g, token)) {
    step.lookup.destinations(g, plan, in, token, to);
    if (to.count == 0) {
      g.sync();
      continue;
    }
    std::byte* message =
        fabric.staging(g, has_remote_ranks ? fabric.local(plan.map.sent_message(step.epoch, token)) : staging);
    const InputRow row{in.tokens + token * in.row_stride, in.dtype};
    const int found =
        format.encode(g, row, plan.shape.hidden, fabric.hooks().input_scale(in), message, message + payload_bytes);
    counted.non_finite += static_cast<std::uint64_t>(format.block() == 0 ? step.ops.count_once(g, found) : found);
    g.sync();
    fabric.put_then_signal_each(g, {to.rank, to.count, plan.rank + token},
                                {plan.map.message(step.epoch, plan.rank, token), message, plan.map.message_bytes(),
                                 plan.map.arrived(step.epoch, plan.rank, token), step.epoch});
    for (int i = g.thread(); i < to.count; i += g.size()) {
      counted.messages[to.rank[i]] += 1;
      counted.bytes[to.rank[i]] += plan.map.message_bytes();
    }
    g.sync();
  }
  fabric.finish_puts(g);
}

}  // namespace ferry
