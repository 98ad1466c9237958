// Dispatch, the sending side: one message for each token and rank. All backends run this text.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ferry/detail/protocol/messages.h"

namespace ferry {

// Counts what a team sends; the backend adds it up. One thread counts a message.
template <class C>
concept SendCounter = requires(C& c, int rank, std::uint64_t count) {
  c.add_non_finite(count);
  c.add_message(rank, count);  // of so many bytes
};

// Where each team has counts of its own.
struct SendCounts {
  std::uint64_t non_finite = 0;
  std::uint64_t* messages = nullptr;  // [ranks]
  std::uint64_t* bytes = nullptr;     // [ranks]

  void add_non_finite(std::uint64_t count) { non_finite += count; }
  void add_message(int rank, std::uint64_t size) const {
    messages[rank] += 1;
    bytes[rank] += size;
  }
};
static_assert(SendCounter<SendCounts>);

// I5: a message is whole in its slot before `arrived` says so. A message is made once. CPU ranks make it in
// `staging`; or, where some rank is reached by puts only, into the send buffer, which I1 keeps until it was read (I15).
// A GPU's fabric has a buffer in shared memory, and copies from there to the send buffer. The ranks come from the
// caller's ids, so no sender waits for the table.
template <SendStep S, MessageMaker<S> M, WorkShare<typename S::Group> Share, SendCounter Counter>
FERRY_HD void send_tokens(const S& step, const M& maker, const DispatchArgs& in, Share share, std::byte* staging,
                          TokenScratch& scratch, Counter& counted) {
  const Plan& plan = step.plan;
  auto& fabric = step.fabric;
  const auto& g = step.group;
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
    counted.add_non_finite(static_cast<std::uint64_t>(maker.make(step, in, token, message)));
    g.sync();
    fabric.put_then_signal_each(g, {to.rank, to.count, plan.rank + token},
                                {plan.map.message(step.epoch, plan.rank, token), message, plan.map.message_bytes(),
                                 plan.map.arrived(step.epoch, plan.rank, token), step.epoch});
    for (int i = g.thread(); i < to.count; i += g.size()) counted.add_message(to.rank[i], plan.map.message_bytes());
    g.sync();
  }
  fabric.finish_puts(g);
}

}  // namespace ferry
