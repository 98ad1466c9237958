// DispatchCalls: the two halves of a dispatch on a CPU rank's workers. Its routing is new, or comes from a handle.
#pragma once

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "cpu/calls/cpu_rank.h"
#include "cpu/calls/overflow_report.h"
#include "cpu/fabric/host_fabric.h"
#include "cpu/fabric/waits_added.h"
#include "cpu/rows/found_rows.h"
#include "cpu/rows/host_ops.h"
#include "cpu/rows/kept_call.h"
#include "cpu/rows/lay_out.h"
#include "cpu/rows/more_rows.h"
#include "cpu/rows/row_metadata.h"
#include "cpu/rows/scaled_messages.h"
#include "cpu/steps/lookup/serial_lookup.h"
#include "cpu/steps/route.h"
#include "cpu/steps/routing/excess_tokens.h"
#include "cpu/steps/routing/keep_routing.h"
#include "cpu/steps/routing/same_inputs.h"
#include "cpu/steps/weights/late_weights.h"
#include "ferry/detail/protocol/await_routing.h"
#include "ferry/detail/protocol/dispatch_send.h"

namespace ferry::cpu {

// RoutedStep looks tokens up in tables, KeptStep in a handle. The number of a step counts messages in a dispatch, and
// results in a combine.
template <CpuFabric F>
using RoutedStep = Step<F, HostGroup, SerialLookup, HostOps>;
template <CpuFabric F>
using KeptStep = Step<F, HostGroup, HandleLookup, HostOps>;

static_assert(MessageMaker<Encoder<AnyFormat>, RoutedStep<HostFabric>> &&
              MessageMaker<GivenRows, RoutedStep<HostFabric>>);
static_assert(MessageMaker<ScalingEncoder<AnyFormat>, RoutedStep<HostFabric>> &&
              MessageMaker<GivenScaledRows, RoutedStep<HostFabric>>);

template <CpuFabric F>
KeptStep<F> kept_step(const CpuRank<F>& rank, const KeptCall& call, const HostGroup& group, Epoch number) {
  return {call.plan(), rank.fabric(), group, 0, number, call.lookup()};
}
inline OrderedPlaces places_of(const Ticket& ticket, const KeptCall& call, const RowRoom& room = {}) {
  return {{call.starts(), call.source_rows(), room}, ticket.rows.order};
}

template <CpuFabric F>
class DispatchCalls {
 public:
  // `header`: of a handle, but for what its dispatch was.
  DispatchCalls(CpuRank<F>& rank, const ExchangeOptions& options, const HandleHeader& header)
      : rank_(rank),
        header_(header),
        found_(rank.plan()),
        waited_ns_(static_cast<std::size_t>(rank.plan().shape.ranks)),
        first_message_(waited_ns_.size() + 1) {
    for (int format = 0; format < num_formats(options); ++format) {
      const ExchangeOptions in_format = options_in(options, format);
      formats_.push_back({in_format.format, ferry::global_scale_at(in_format, rank.plan().shape.hidden)});
    }
  }

  // Of the newest dispatch, after CpuRank::take_format.
  void take_format(int format) {
    format_ = static_cast<std::size_t>(format);
    header_.alignment = rank_.plan().alignment;
  }

  void set_exchange_number(std::uint32_t number) { header_.routing = routing_of_exchange(number, 0); }

  // What the dispatch without a handle that came last has laid out.
  const FoundRows& found() const { return found_; }

  // `handle` is checked. It is that of the next dispatch.
  void replay(const std::byte* handle) { replayed_.emplace(rank_.plan(), handle).set_mask(rank_.masks().newest()); }

  // The first step of `send`: it writes only this rank's own memory.
  void route(const Ticket& ticket, const DispatchArgs& args) {
    if (has_late_weights(ticket))
      fill_late_weights(rank_.plan(), rank_.fabric(), late_copy(Operation::dispatch, ticket.message), args.num_tokens,
                        args.weights);
    if (routes(ticket, args))
      rank_.stats().add_dropped(route_entries(rank_.plan(), rank_.fabric(), args, ticket.routing));
  }

  void send(const Ticket& ticket, const DispatchArgs& args) {
    std::fill(waited_ns_.begin(), waited_ns_.end(), 0);
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
    const WaitsAdded added(rank_.waits(), waited_ns_);
    const Plan& plan = rank_.plan();
    rank_.compare_calls(plan.map.dispatching(0), ticket.message, ticket.mark);
    if (ticket.handle != nullptr) return least_capacity(replayed_->plan(), starts_of(places_of(ticket, *replayed_)));
    rank_.require_no_one_missing(await_routing(plan, rank_.fabric(), rank_.group(), ticket.routing));  // I1, I2
    if (const int source = source_of_excess(plan, rank_.fabric(), ticket.routing); source >= 0) {
      drain(ticket);
      refuse_excess(plan, rank_.fabric(), ticket.routing, source);
    }
    if (const int source = source_of_other_format(plan, rank_.fabric(), ticket.routing); source >= 0) {
      drain(ticket);
      refuse_format(plan, rank_.fabric(), ticket.routing, source);
    }
    found_.find(plan, rank_.fabric(), ticket);
    return found_.num_rows();
  }

  RowCounts row_counts(const Ticket& ticket) const {
    if (ticket.handle != nullptr) {
      RowCounts kept = counts_of(replayed_->plan(), starts_of(places_of(ticket, *replayed_)));
      if (ticket.by_counts) kept.by_expert.clear();  // no table says which experts, and no rank gave counts
      return kept;
    }
    RowCounts counts = counts_of(rank_.plan(), starts_of(found_places(ticket)));
    if (ticket.by_counts) counts.by_expert = given_counts_of(rank_.plan(), rank_.fabric(), ticket.routing);
    return counts;
  }

  void receive(const Ticket& ticket, const RowsOut& out) {
    if (ticket.handle != nullptr)
      receive_replay(ticket, out);
    else
      receive_routed(ticket, out);
    const OrderedPlaces places =
        ticket.handle != nullptr ? places_of(ticket, *replayed_, room_of(out)) : found_places(ticket);
    add_statistics(rank_.plan(), places.starts, waited_ns_, out);
    const std::uint32_t dropped = dropped_rows(rank_.plan(), places);
    if (out.overflow != nullptr) *out.overflow = static_cast<std::int32_t>(dropped);
    if (ticket.overflow == Overflow::reported) overflow_.note(dropped, out);
  }

  // Throws once for the dispatches since the last time.
  void tell_overflow() { overflow_.tell(rank_.plan().rank); }

 private:
  bool routes(const Ticket& ticket, const DispatchArgs& args) const {
    return ticket.handle == nullptr && args.num_tokens <= rank_.plan().shape.max_tokens;
  }
  RoutedStep<F> routed_step(const HostGroup& group, const Ticket& ticket) const {
    return {rank_.plan(), rank_.fabric(), group, ticket.routing, ticket.message};
  }
  OrderedPlaces found_places(const Ticket& ticket) const { return found_.places(rank_.plan(), rank_.fabric(), ticket); }

  // Of a dispatch that is refused.
  void drain(const Ticket& ticket) {
    const SharedTokens shared{ticket.shared.begin, ticket.shared.end};
    rank_.on_workers(
        [&](FixedShare share) { return drain_messages(routed_step(rank_.group(), ticket), shared, share); });
  }

  void receive_routed(const Ticket& ticket, const RowsOut& out) {
    rank_.number_slots(ticket.routing);
    found_.set_room(room_of(out));
    const HostGroup group = group_for(rows_that_came(rank_.plan(), found_.starts()) * out.row_bytes);
    lay_out(routed_step(group, ticket), ticket, found_places(ticket), out);
    if (out.handle != nullptr) keep_routing(ticket, kept_routing_at(rank_.plan(), out.handle));
    if (ticket.by_counts && out.counts != nullptr) {
      const std::vector<std::int64_t> given = given_counts_of(rank_.plan(), rank_.fabric(), ticket.routing);
      std::transform(given.begin(), given.end(), out.counts, [](std::int64_t count) {
        return static_cast<std::int32_t>(std::min<std::int64_t>(count, INT32_MAX));
      });
    }
    // Last, so that a refused dispatch is one whose combine never comes.
    if (rank_.plan().map.has_token_lists()) require_counts_alike(rank_.plan(), rank_.fabric(), ticket.routing);
    if (encoder().takes_input_scale()) require_same_input_scale(rank_.plan(), rank_.fabric(), ticket.routing);
  }

  void send_all(const Ticket& ticket, const DispatchArgs& args) {
    std::vector<std::uint64_t> bytes(static_cast<std::size_t>(rank_.plan().shape.ranks));
    publish_routing(rank_.plan(), rank_.fabric(), rank_.group(), args, ticket.routing, bytes.data());
    rank_.add_bytes(bytes);
    send_messages(routed_step(sending_group(args), ticket), args);
  }

  // Whether the dispatch is a replay that may bring new weights.
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
    if (encoder().takes_input_scale() && call.plan().map.has_input_scales())
      put_input_scale(call.plan(), rank_.fabric(), rank_.group(), ticket.message, args.scale());
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
      with_maker_of(args, encoder(), global_scale_at(), [&](const auto& maker) {
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

  // From messages to rows. The look-up of `from` knows the routing: from the tables, or from a handle.
  template <ReceiveStep S>
  void lay_out(const S& from, const Ticket& ticket, const OrderedPlaces& places, const RowsOut& out) {
    const auto receiving = with_ops(from, HostOps{{out.global_scales, global_scale_at()}});
    write_metadata(receiving, places, out);
    write_more_rows(receiving, places, out);
    const WaitsAdded added(rank_.waits(), waited_ns_);
    const SharedTokens shared{ticket.shared.begin, ticket.shared.end};
    rank_.on_workers([&](FixedShare share) {
      const bool ok = lay_out_share(receiving, shared, share, places, out, rank_.scratch(share));
      finish_stores(receiving.group);
      return ok;
    });
    count_received(rank_.stats(), receiving.plan, places.starts);
    rank_.stats().add_dispatch();
  }

  // Outputs that the caller asked for. No rank waits for them.
  template <ReceiveStep S>
  void write_more_rows(const S& receiving, const OrderedPlaces& places, const RowsOut& out) {
    write_counts(receiving.plan, places.starts, out);
    if (wants_padding(out))
      rank_.on_workers([&](FixedShare share) {
        write_padding(receiving, share, places, out);
        return true;
      });
    if (wants_messages(out)) number_messages(receiving, places, out);
    if (!wants_row_facts(out)) return;
    rank_.on_workers([&](FixedShare share) {
      write_row_facts(receiving, share, places, first_message_.data(), out, rank_.scratch(share));
      return true;
    });
    write_shared_facts(receiving.plan, places.starts, out);
  }

  // The first message of each source, and lines of -1.
  template <ReceiveStep S>
  void number_messages(const S& receiving, const OrderedPlaces& places, const RowsOut& out) {
    rank_.on_workers([&](FixedShare share) {
      count_messages(receiving, share, places.starts, rank_.scratch(share), first_message_.data());
      return true;
    });
    for (std::size_t source = 1; source < first_message_.size(); ++source)
      first_message_[source] += first_message_[source - 1];
    if (places.order != RowOrder::by_source && out.source_offsets != nullptr)
      std::copy(first_message_.begin(), first_message_.end(), out.source_offsets);
    const std::int64_t words = out.message_capacity * (2 + receiving.plan.shape.top_k);
    if (out.messages != nullptr) std::fill_n(out.messages, words, -1);
  }

  void receive_replay(const Ticket& ticket, const RowsOut& out) {
    const KeptCall& call = *replayed_;
    await_replay(ticket);
    const HostGroup group = group_for(rows_that_came(rank_.plan(), call.starts()) * out.row_bytes);
    const auto receiving = kept_step(rank_, call, group, ticket.message);
    const OrderedPlaces places = places_of(ticket, call, room_of(out));
    const int copy = late_copy(Operation::dispatch, ticket.message);
    if (has_late_weights(ticket))
      lay_out(with_late_weights(receiving, copy), ticket, places, out);
    else
      lay_out(receiving, ticket, places, out);
    pad_rows_of_masked(with_ops(receiving, HostOps{{out.global_scales, global_scale_at()}}), call, places, out,
                       rank_.scratch({0, 1}).found);
    if (out.handle != nullptr) leave_replayed(ticket, places, copy, out.handle);
    if (encoder().takes_input_scale() && call.plan().map.has_input_scales())
      require_same_replayed_scale(call.plan(), rank_.fabric(), ticket.message);
  }
  // The handle that a replay leaves.
  void leave_replayed(const Ticket& ticket, const RowPlaces& places, int copy, std::byte* handle) const {
    const KeptCall& call = *replayed_;
    std::memmove(handle, ticket.handle, HandleSizes(rank_.plan()).bytes());
    const KeptRouting left = kept_routing_at(rank_.plan(), handle);
    left.header->row_room = room_in_handle(places.room);
    if (has_late_weights(ticket))
      keep_late_weights(call.plan(), LateWeights(call.plan(), rank_.fabric(), copy), call.starts(), left);
  }
  void await_replay(const Ticket& ticket) {
    const WaitsAdded added(rank_.waits(), waited_ns_);
    const Plan& plan = replayed_->plan();
    rank_.require_no_one_missing(await_dispatching(plan, rank_.fabric(), rank_.group(), ticket.message));  // I1
    rank_.require_no_one_missing(rank_.waits().have_same_routing(Operation::dispatch));
  }

  void keep_routing(const Ticket& ticket, KeptRouting to) {
    keep_own_part(rank_.plan(), rank_.fabric(), ticket, header_, found_.starts(), found_.room(), to);
    rank_.on_workers([&](FixedShare share) {
      keep_arrivals(rank_.plan(), rank_.fabric(), ticket.routing, share, found_.starts(), to);
      return true;
    });
  }

  CpuRank<F>& rank_;
  struct Encoding {
    AnyFormat format;
    std::size_t global_scale_at;  // in a message; 0: rows have none
  };
  const AnyFormat& encoder() const { return formats_[format_].format; }
  std::size_t global_scale_at() const { return formats_[format_].global_scale_at; }

  std::vector<Encoding> formats_;
  std::size_t format_ = 0;  // of the newest dispatch
  HandleHeader header_;
  FoundRows found_;
  std::optional<KeptCall> replayed_;          // what the newest dispatch with a handle was given
  std::vector<std::uint64_t> waited_ns_;      // [ranks]: for each rank in the receiving half of the newest dispatch
  std::vector<std::uint32_t> first_message_;  // [ranks + 1]: of each source, where somebody asked for messages
  OverflowReport overflow_;
};

}  // namespace ferry::cpu
