// CombineCalls: the two halves of a combine on a CPU rank's workers: of the newest dispatch, or of that of a handle.
#pragma once

#include <optional>
#include <vector>

#include "cpu/calls/dispatch_calls.h"
#include "cpu/fabric/waits_added.h"
#include "cpu/rows/encoded_results.h"
#include "cpu/rows/src_info_check.h"
#include "cpu/steps/combine_receive.h"
#include "cpu/steps/combine_send.h"
#include "cpu/steps/weights/late_weights.h"

namespace ferry::cpu {

template <CpuFabric F>
class CombineCalls {
 public:
  // `found`: where the rows of the newest dispatch without a handle lie.
  CombineCalls(CpuRank<F>& rank, const ExchangeOptions& options, const FoundRows& found)
      : rank_(rank),
        found_(found),
        results_(options.result_format, rank.plan().shape.hidden, rank.plan().map.results_per_token(),
                 options.workers) {}

  // `handle` is checked. It is that of the next combine.
  void keep(const std::byte* handle) { returned_.emplace(rank_.plan(), handle).set_mask(rank_.masks().newest()); }

  // The caller's src_info against what the dispatch of this combine laid out.
  void check(const CheckContext& context, const Ticket& ticket, const std::int32_t* src_info) const {
    if (ticket.handle != nullptr)
      check_src_info(context, ticket, src_info, kept_step(rank_, *returned_, rank_.group(), ticket.result),
                     returned_places(ticket));
    else
      check_src_info(context, ticket, src_info, routed_step(rank_.group(), ticket), found_places(ticket));
  }

  void send_back(const Ticket& ticket, const CombineArgs& args) {
    const Plan& plan = rank_.plan();
    rank_.compare_calls(plan.map.combining(0), ticket.result, ticket.mark);
    rank_.begin_step("wait");
    if (ticket.handle != nullptr) return send_back_kept(ticket, args);
    rank_.take_reduction(args.exact, ticket.routing);
    rank_.require_no_one_missing(await_summed(plan, rank_.fabric(), rank_.group(), ticket.result));
    rank_.begin_step("send");
    fill_late(ticket, args);
    rank_.end_exchange_on_error(Operation::combine, ticket.result, [&] {
      if (rank_.chooses_reduction()) post_combining(plan, rank_.fabric(), rank_.group(), ticket.result, ticket.mark);
      if (has_late_weights())
        send_late_weights(routed_step(rank_.group(), ticket), ticket);
      else
        send_all_back(routed_step(sending_group(found_.starts()), ticket), found_places(ticket), args);
    });
    due_ = ticket;
  }

  void reduce(const Ticket& ticket, const CombineArgs& sent, const CombineOut& out) {
    rank_.compare_calls(rank_.plan().map.combining(0), ticket.result, ticket.mark);
    if (has_late_weights()) send_weighed_back(ticket, sent);
    rank_.begin_step("sum");
    if (ticket.handle != nullptr) {
      reduce_all(kept_step(rank_, *returned_, rank_.group(), ticket.result), ticket, returned_->starts(), sent, out);
    } else {
      reduce_all(routed_step(rank_.group(), ticket), ticket, found_.starts(), sent, out);
      due_.reset();
    }
  }

  // I8: combine_async was called, combine_wait will not be. With late weights no result is on its way, but weights are.
  // After await_weighed the weights of all ranks are here, and `summed` tells the others so. They then put the next
  // combine's weights from the same buffer (I15).
  void drain() {
    if (!due_) return;
    if (has_late_weights())
      return rank_.require_no_one_missing(await_weighed(rank_.plan(), rank_.fabric(), rank_.group(), due_->result));
    rank_.on_workers([&](FixedShare share) {
      return drain_results(routed_step(rank_.group(), *due_), share, rank_.scratch(share));
    });
    require_same_calls();  // else more may be on its way than was drained
  }
  void give_up() {
    if (!due_) return;
    post_summed(rank_.plan(), rank_.fabric(), rank_.group(), due_->result);
    due_.reset();
  }

 private:
  bool has_late_weights() const { return rank_.plan().map.has_late_weights(); }
  // I22
  void require_same_calls() { rank_.require_no_one_missing(rank_.waits().have_same_routing(Operation::combine)); }

  // Before anything moves: a hook of the caller's may throw, and the call may then be made again.
  void fill_late(const Ticket& ticket, const CombineArgs& args) {
    if (!has_late_weights()) return;
    const int copy = late_copy(Operation::combine, ticket.result);
    fill_late_weights(rank_.plan(), rank_.fabric(), copy, ticket.num_tokens, args.weights);
  }
  // In place of results, which follow when the weights of all ranks are there.
  template <ReceiveStep S>
  void send_late_weights(const S& step, const Ticket& ticket) {
    const int copy = late_copy(Operation::combine, ticket.result);
    std::vector<std::uint64_t> bytes(static_cast<std::size_t>(step.plan.shape.ranks));
    put_late_weights(step, copy, ticket.num_tokens, bytes.data());
    rank_.add_bytes(bytes);
    post_weighed(step.plan, rank_.fabric(), rank_.group(), ticket.result);
  }
  void send_weighed_back(const Ticket& ticket, const CombineArgs& args) {
    const int copy = late_copy(Operation::combine, ticket.result);
    const Plan& plan = ticket.handle != nullptr ? returned_->plan() : rank_.plan();
    rank_.begin_step("wait");
    rank_.require_no_one_missing(await_weighed(plan, rank_.fabric(), rank_.group(), ticket.result));
    rank_.begin_step("send");
    rank_.end_exchange_on_error(Operation::combine, ticket.result, [&] {
      const HostGroup group = sending_group(ticket.handle != nullptr ? returned_->starts() : found_.starts());
      if (ticket.handle != nullptr) {
        const auto sending = kept_step(rank_, *returned_, group, ticket.result);
        send_all_back(with_late_weights(sending, copy), returned_places(ticket), args);
      } else {
        const auto sending = routed_step(group, ticket);
        send_all_back(with_late_weights(sending, copy), found_places(ticket), args);
      }
    });
  }

  RoutedStep<F> routed_step(const HostGroup& group, const Ticket& ticket) const {
    return {rank_.plan(), rank_.fabric(), group, ticket.routing, ticket.result};
  }
  OrderedPlaces found_places(const Ticket& ticket) const { return found_.places(rank_.plan(), rank_.fabric(), ticket); }

  OrderedPlaces returned_places(const Ticket& ticket) const { return places_of(ticket, *returned_, returned_->room()); }

  HostGroup sending_group(const RowStarts& starts) const {
    return rank_.sending_group_for(rows_that_came(rank_.plan(), starts) * rank_.plan().map.result_bytes());
  }
  template <ReceiveStep S>
  void send_all_back(const S& sending, const OrderedPlaces& places, const CombineArgs& args) {
    const int ranks = rank_.plan().shape.ranks;
    if (!places.room.holds_all()) zeros_.resize(static_cast<std::size_t>(rank_.plan().shape.hidden) * sizeof(float));
    rank_.on_workers([&](FixedShare share) {
      std::vector<std::uint64_t> sent(static_cast<std::size_t>(ranks));
      const ResultCounts counted{sent.data()};
      std::byte* staging = rank_.staging(share);
      const ReturnedRows rows{args, places.room, zeros_.data()};
      results_.with_ops_of(sending, share.index, [&](const auto& step) {
        if (places.order == RowOrder::by_source)
          send_rows_by_source(step, share, places.starts, places.by_source, rows, staging, counted);
        else
          send_results(step, share, places.starts, rows, staging, rank_.scratch(share), counted);
        return true;
      });
      for (int peer = 0; peer < ranks; ++peer) rank_.stats().add_bytes(peer, sent[static_cast<std::size_t>(peer)]);
      return true;
    });
  }

  void send_back_kept(const Ticket& ticket, const CombineArgs& args) {
    KeptCall& call = *returned_;
    call.take_reduction(args.exact);
    rank_.masks().begin_combine_with_handle();
    if (rank_.plan().packed != nullptr) call.number_slots();
    rank_.require_no_one_missing(await_summed(call.plan(), rank_.fabric(), rank_.group(), ticket.result));
    rank_.begin_step("send");
    fill_late(ticket, args);
    rank_.end_exchange_on_error(Operation::combine, ticket.result, [&] {
      post_combining(call.plan(), rank_.fabric(), rank_.group(), ticket.result, ticket.mark);
      const HostGroup group = sending_group(call.starts());
      const auto sending = kept_step(rank_, call, group, ticket.result);
      if (has_late_weights())
        send_late_weights(sending, ticket);
      else
        send_all_back(sending, returned_places(ticket), args);
    });
  }

  template <ReceiveStep S>
  void reduce_all(const S& receiving, const Ticket& ticket, const RowStarts& starts, const CombineArgs& sent,
                  const CombineOut& out) {
    std::vector<std::uint64_t> waited_ns(static_cast<std::size_t>(rank_.plan().shape.ranks));
    {
      const WaitsAdded added(rank_.waits(), waited_ns);
      rank_.on_workers([&](FixedShare share) {
        return results_.with_ops_of(receiving, share.index, [&](const auto& step) {
          return receive_results(step, ticket.num_tokens, share, starts, sent, out, rank_.scratch(share));
        });
      });
    }
    require_same_calls();
    for (std::size_t peer = 0; out.waited_ns != nullptr && peer < waited_ns.size(); ++peer)
      out.waited_ns[peer] += static_cast<std::int64_t>(waited_ns[peer]);
    rank_.stats().add_combine();
    post_summed(receiving.plan, rank_.fabric(), rank_.group(), ticket.result);
  }

  CpuRank<F>& rank_;
  const FoundRows& found_;
  ResultFormat results_;
  std::vector<std::byte> zeros_;      // the row that stands for those without room
  std::optional<KeptCall> returned_;  // what the newest combine with a handle was given
  std::optional<Ticket> due_;         // of the combine whose send_back was called, and reduce was not
};

}  // namespace ferry::cpu
