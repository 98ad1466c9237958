// DispatchCalls: the two halves of a dispatch on a CPU rank's workers, whose routing it makes or has from a handle.
#pragma once

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "cpu/cpu_rank.h"
#include "cpu/found_rows.h"
#include "cpu/host_ops.h"
#include "cpu/kept_call.h"
#include "cpu/lay_out.h"
#include "cpu/row_counts.h"
#include "cpu/steps/excess_tokens.h"
#include "cpu/steps/input_scale.h"
#include "cpu/steps/keep_routing.h"
#include "cpu/steps/late_weights.h"
#include "cpu/steps/route.h"
#include "cpu/steps/serial_lookup.h"
#include "ferry/detail/protocol/dispatch_send.h"

namespace ferry::cpu {

// Steps whose answers come from tables, and those that have them from a handle. `number`: of the messages in a
// dispatch, of the results in a combine.
template <CpuFabric F>
using RoutedStep = Step<F, HostGroup, SerialLookup, HostOps>;
template <CpuFabric F>
using KeptStep = Step<F, HostGroup, HandleLookup, HostOps>;

template <CpuFabric F>
KeptStep<F> kept_step(const CpuRank<F>& rank, const KeptCall& call, const HostGroup& group, Epoch number) {
  return {call.plan(), rank.fabric(), group, 0, number, call.lookup()};
}
inline RowPlaces places_of(const Ticket& ticket, const KeptCall& call) {
  return {ticket.rows.order, call.starts(), call.source_rows()};
}

template <CpuFabric F>
class DispatchCalls {
 public:
  // `header`: of a handle, but for what its dispatch was.
  DispatchCalls(CpuRank<F>& rank, const AnyFormat& format, const HandleHeader& header)
      : rank_(rank), format_(format), header_(header), found_(rank.plan()) {}

  // What the dispatch without a handle that came last has laid out.
  const FoundRows& found() const { return found_; }

  // `handle` is checked. It is that of the next dispatch.
  void replay(const std::byte* handle) { replayed_.emplace(rank_.plan(), handle).set_mask(rank_.masks().newest()); }

  // The first step of `send`: it writes this rank's own memory alone.
  void route(const Ticket& ticket, const DispatchArgs& args) {
    if (has_late_weights(ticket))
      fill_late_weights(rank_.plan(), rank_.fabric(), late_copy(Operation::dispatch, ticket.message), args.num_tokens,
                        args.weights);
    if (routes(ticket, args))
      rank_.stats().add_dropped(route_entries(rank_.plan(), rank_.fabric(), args, ticket.routing));
  }

  void send(const Ticket& ticket, const DispatchArgs& args) {
    rank_.compare_calls(rank_.plan().map.dispatching(0), ticket.message, ticket.mark);
    rank_.end_exchange_on_error(Operation::dispatch, ticket.message, [&] {
      if (ticket.handle != nullptr)
        replay_all(ticket, args);
      else if (!routes(ticket, args))
        publish_excess(rank_.plan(), rank_.fabric(), rank_.group(), args, ticket.routing);
      else
        send_all(ticket, args);
    });
  }

  std::int64_t await_counts(const Ticket& ticket) {
    const Plan& plan = rank_.plan();
    rank_.compare_calls(plan.map.dispatching(0), ticket.message, ticket.mark);
    if (ticket.handle != nullptr) return least_capacity(replayed_->plan(), places_of(ticket, *replayed_));
    rank_.require_no_one_missing(await_routing(plan, rank_.fabric(), rank_.group(), ticket.routing));  // I1, I2
    if (const int source = source_of_excess(plan, rank_.fabric(), ticket.routing); source >= 0) {
      const SharedTokens shared{ticket.shared.begin, ticket.shared.end};
      rank_.on_workers(
          [&](FixedShare share) { return drain_messages(routed_step(rank_.group(), ticket), shared, share); });
      refuse_excess(plan, rank_.fabric(), ticket.routing, source);
    }
    found_.find(plan, rank_.fabric(), ticket);
    return found_.num_rows();
  }

  RowCounts row_counts(const Ticket& ticket) const {
    return ticket.handle != nullptr ? counts_of(replayed_->plan(), places_of(ticket, *replayed_))
                                    : counts_of(rank_.plan(), found_places(ticket));
  }

  void receive(const Ticket& ticket, const RowsOut& out) {
    if (ticket.handle != nullptr) return receive_replay(ticket, out);
    rank_.number_slots(ticket.routing);
    const HostGroup group = group_for(rows_that_came(rank_.plan(), found_.starts()) * out.row_bytes);
    lay_out(routed_step(group, ticket), ticket, found_places(ticket), out);
    if (out.handle != nullptr) keep_routing(ticket, kept_routing_at(rank_.plan(), out.handle));
    // Last, so that a refused dispatch is one whose combine never comes.
    if (format_.takes_input_scale()) require_same_input_scale(rank_.plan(), rank_.fabric(), ticket.routing);
  }

 private:
  bool routes(const Ticket& ticket, const DispatchArgs& args) const {
    return ticket.handle == nullptr && args.num_tokens <= rank_.plan().shape.max_tokens;
  }
  RoutedStep<F> routed_step(const HostGroup& group, const Ticket& ticket) const {
    return {rank_.plan(), rank_.fabric(), group, ticket.routing, ticket.message};
  }
  RowPlaces found_places(const Ticket& ticket) const { return found_.places(rank_.plan(), rank_.fabric(), ticket); }

  void send_all(const Ticket& ticket, const DispatchArgs& args) {
    std::vector<std::uint64_t> bytes(static_cast<std::size_t>(rank_.plan().shape.ranks));
    publish_routing(rank_.plan(), rank_.fabric(), rank_.group(), args, ticket.routing, bytes.data());
    rank_.add_bytes(bytes);
    send_messages(routed_step(sending_group(args), ticket), args);
  }

  // Of replays.
  bool has_late_weights(const Ticket& ticket) const {
    return ticket.handle != nullptr && rank_.plan().map.has_late_weights();
  }

  // I1: without a routing, the word `dispatching` says that this rank has begun. I24: it follows late weights.
  void replay_all(const Ticket& ticket, const DispatchArgs& args) {
    const KeptCall& call = *replayed_;
    if (has_late_weights(ticket)) {
      std::vector<std::uint64_t> bytes(static_cast<std::size_t>(rank_.plan().shape.ranks));
      put_late_weights(kept_step(rank_, call, rank_.group(), ticket.message),
                       late_copy(Operation::dispatch, ticket.message), ticket.num_tokens, bytes.data());
      rank_.add_bytes(bytes);
    }
    post_dispatching(call.plan(), rank_.fabric(), rank_.group(), ticket.message, ticket.mark);
    send_messages(kept_step(rank_, call, sending_group(args), ticket.message), args);
  }

  HostGroup sending_group(const DispatchArgs& args) const {
    const Plan& plan = rank_.plan();
    const std::size_t copies = static_cast<std::size_t>(std::min(plan.shape.ranks, plan.shape.top_k));
    return rank_.sending_group_for(static_cast<std::size_t>(args.num_tokens) * copies * plan.map.message_bytes());
  }
  template <SendStep S>
  void send_messages(const S& sending, const DispatchArgs& args) {
    const int ranks = rank_.plan().shape.ranks;
    rank_.on_workers([&](FixedShare share) {
      std::vector<std::uint64_t> sent(2 * static_cast<std::size_t>(ranks));
      SendCounts counted{0, sent.data(), sent.data() + ranks};
      with_message_maker(args, format_, [&](const auto& maker) {
        send_tokens(sending, maker, args, share, rank_.staging(share), rank_.scratch(share), counted);
      });
      rank_.stats().add_non_finite(counted.non_finite);
      for (int peer = 0; peer < ranks; ++peer) {
        rank_.stats().add_messages(peer, counted.messages[peer]);
        rank_.stats().add_bytes(peer, counted.bytes[peer]);
      }
      return true;
    });
  }

  // From messages to rows, whoever knows the routing.
  template <ReceiveStep S>
  void lay_out(const S& receiving, const Ticket& ticket, const RowPlaces& places, const RowsOut& out) {
    write_metadata(receiving, places, out);
    const SharedTokens shared{ticket.shared.begin, ticket.shared.end};
    rank_.on_workers([&](FixedShare share) {
      const bool ok = lay_out_share(receiving, shared, share, places, out, rank_.scratch(share));
      finish_stores(receiving.group);
      return ok;
    });
    count_received(rank_.stats(), receiving.plan, places.starts);
    rank_.stats().add_dispatch();
  }

  void receive_replay(const Ticket& ticket, const RowsOut& out) {
    const KeptCall& call = *replayed_;
    rank_.require_no_one_missing(await_dispatching(call.plan(), rank_.fabric(), rank_.group(), ticket.message));  // I1
    rank_.require_no_one_missing(rank_.waits().have_same_routing(Operation::dispatch));
    const HostGroup group = group_for(rows_that_came(rank_.plan(), call.starts()) * out.row_bytes);
    const auto receiving = kept_step(rank_, call, group, ticket.message);
    const RowPlaces places = places_of(ticket, call);
    const int copy = late_copy(Operation::dispatch, ticket.message);
    if (has_late_weights(ticket))
      lay_out(with_late_weights(receiving, copy), ticket, places, out);
    else
      lay_out(receiving, ticket, places, out);
    pad_rows_of_masked(receiving, call, places, out, rank_.scratch({0, 1}).found);
    if (out.handle == nullptr) return;
    std::memmove(out.handle, ticket.handle, HandleSizes(rank_.plan()).bytes());
    if (has_late_weights(ticket))
      keep_late_weights(call.plan(), LateWeights(call.plan(), rank_.fabric(), copy), call.starts(),
                        kept_routing_at(rank_.plan(), out.handle));
  }

  void keep_routing(const Ticket& ticket, const KeptRouting& to) {
    keep_own_part(rank_.plan(), rank_.fabric(), ticket, header_, found_.starts(), to);
    rank_.on_workers([&](FixedShare share) {
      keep_arrivals(rank_.plan(), rank_.fabric(), ticket.routing, share, found_.starts(), to);
      return true;
    });
  }

  CpuRank<F>& rank_;
  AnyFormat format_;
  const HandleHeader header_;
  FoundRows found_;
  std::optional<KeptCall> replayed_;  // what the newest dispatch with a handle was given
};

}  // namespace ferry::cpu
