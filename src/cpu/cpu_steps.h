// CpuSteps: an exchange of a CPU rank, over any fabric. It runs the steps of a round on the rank's workers: those of
// ferry/detail/protocol, which all backends run, and those of cpu/steps, which GPUs restate.
#pragma once

#include <functional>

#include "cpu/call_masks.h"
#include "cpu/cpu_fabric.h"
#include "cpu/encoded_results.h"
#include "cpu/exchange_stats.h"
#include "cpu/found_rows.h"
#include "cpu/host_ops.h"
#include "cpu/lay_out.h"
#include "cpu/row_counts.h"
#include "cpu/src_info_check.h"
#include "cpu/steps/combine_receive.h"
#include "cpu/steps/combine_send.h"
#include "cpu/steps/excess_tokens.h"
#include "cpu/steps/input_scale.h"
#include "cpu/steps/keep_routing.h"
#include "cpu/steps/packed_results.h"
#include "cpu/steps/route.h"
#include "cpu/steps/serial_lookup.h"
#include "cpu/worker_pool.h"
#include "exchange/exchange_steps.h"
#include "exchange/plan.h"
#include "exchange/sizes.h"
#include "ferry/detail/protocol/dispatch_send.h"

namespace ferry::cpu {

template <CpuFabric F>
class CpuSteps final : public ExchangeSteps {
 public:
  // make_fabric(rank, offset of the abort words, masked): rank as the protocol sees it.
  using MakeFabric = std::function<std::unique_ptr<F>(int, std::size_t, const std::uint8_t*)>;

  CpuSteps(int rank, const Shape& shape, const ExchangeOptions& options, const HeapMap& map,
           const MakeFabric& make_fabric)
      : plan_(make_plan(shape, options, map, rank)),
        format_(options.format),
        results_(options.result_format, shape.hidden, map.results_per_token(), options.workers),
        header_(handle_header(rank, shape, options, {.alignment = plan_.alignment})),
        masks_(options, plan_.shape.ranks),
        found_(plan_),
        scratch_(static_cast<std::size_t>(options.workers)),
        pool_(options.workers),
        stats_(plan_.shape.ranks, plan_.local_experts(), row_bytes(row_layout(shape, options, rank), options.format)) {
    if (plan_.map.has_remote_ranks()) {
      packed_slots_ = packed_.emplace(plan_).slots();
      plan_.packed = &packed_slots_;
    }
    plan_.masked = masks_.of_dispatch().data();
    const std::size_t most = std::max(map.message_bytes(), map.result_bytes());
    staging_bytes_ = (most + sizeof(Bytes16) - 1) / sizeof(Bytes16) * sizeof(Bytes16);
    staging_.resize(staging_bytes_ / sizeof(Bytes16) * static_cast<std::size_t>(options.workers));
    fabric_ = make_fabric(plan_.rank, map.aborted(0), masks_.of_call().data());
  }

  void start(const CallOptions&, std::chrono::milliseconds deadline) override {
    fabric_->waits().set_deadline(deadline);
  }

  void check_dispatch_input(const CheckContext& context, const DispatchInput& in, DispatchArgs& args) override {
    check_host_input(context, in, args);
  }
  void check_combine_input(const CheckContext& context, const Ticket& ticket, const CombineInput& in,
                           const CombineArgs&) override {
    if (!in.src_info) return;
    const auto* src_info = static_cast<const std::int32_t*>(in.src_info.data);
    if (ticket.handle != nullptr)
      check_src_info(context, ticket, src_info, kept_step(*returned_, group_, ticket.result),
                     places_of(ticket, *returned_));
    else
      check_src_info(context, ticket, src_info, combine_step(group_, ticket), places_of(ticket));
  }
  std::uint32_t num_rows() const override { return found_.num_rows(); }

  std::optional<HandleFacts> read_handle(const CheckContext& context, const std::byte* handle,
                                         Operation operation) override {
    const HandleFacts facts = check_handle(context, plan_, handle);
    (operation == Operation::dispatch ? replayed_ : returned_).emplace(plan_, handle).set_mask(masks_.newest());
    return facts;
  }

  void require_handles(const CheckContext&) override {}
  const std::byte* arrival_slots() const override { return fabric_->local(plan_.map.begin(HeapMap::kMessages)); }

  void send(const Ticket& ticket, const DispatchArgs& args) override {
    masks_.begin_dispatch();
    drain_combine();
    const bool routes = ticket.handle == nullptr && args.num_tokens <= plan_.shape.max_tokens;
    if (routes) stats_.add_dropped(route_entries(plan_, *fabric_, args, ticket.routing));
    give_up_combine();
    compare_calls(plan_.map.dispatching(0), ticket.message, ticket.mark);
    end_exchange_on_error(Operation::dispatch, ticket.message, [&] {
      if (ticket.handle != nullptr)
        replay_all(ticket, args);
      else if (!routes)
        publish_excess(plan_, *fabric_, group_, args, ticket.routing);
      else
        send_all(ticket, args);
    });
  }

  std::int64_t await_counts(const Ticket& ticket) override {
    compare_calls(plan_.map.dispatching(0), ticket.message, ticket.mark);
    if (ticket.handle != nullptr) return least_capacity(replayed_->plan(), places_of(ticket, *replayed_));
    require_no_one_missing(await_routing(plan_, *fabric_, group_, ticket.routing));  // I1, I2
    if (const int source = source_of_excess(plan_, *fabric_, ticket.routing); source >= 0) {
      const SharedTokens shared{ticket.shared.begin, ticket.shared.end};
      on_workers([&](FixedShare share) { return drain_messages(dispatch_step(group_, ticket), shared, share); });
      refuse_excess(plan_, *fabric_, ticket.routing, source);
    }
    found_.find(plan_, *fabric_, ticket);
    return num_rows();
  }

  RowCounts row_counts(const Ticket& ticket) const override {
    return ticket.handle != nullptr ? counts_of(replayed_->plan(), places_of(ticket, *replayed_))
                                    : counts_of(plan_, places_of(ticket));
  }

  void receive(const Ticket& ticket, const RowsOut& out) override {
    if (ticket.handle != nullptr) return receive_replay(ticket, out);
    if (packed_) packed_->number_slots(plan_, *fabric_, ticket.routing);
    const HostGroup group = group_for(rows_that_came(plan_, found_.starts()) * out.row_bytes);
    lay_out(dispatch_step(group, ticket), ticket, places_of(ticket), out);
    if (out.handle != nullptr) keep_routing(ticket, kept_routing_at(plan_, out.handle));
    // Last, so that a refused dispatch is one whose combine never comes.
    if (format_.takes_input_scale()) require_same_input_scale(plan_, *fabric_, ticket.routing);
  }

  void send_back(const Ticket& ticket, const CombineArgs& args) override {
    compare_calls(plan_.map.combining(0), ticket.result, ticket.mark);
    if (ticket.handle != nullptr) return send_back_kept(ticket, args);
    require_no_one_missing(await_summed(plan_, *fabric_, group_, ticket.result));
    end_exchange_on_error(Operation::combine, ticket.result, [&] {
      send_all_back(combine_step(sending_group(found_.starts()), ticket), places_of(ticket), args);
    });
    due_ = ticket;
  }

  void reduce(const Ticket& ticket, const CombineArgs& sent, const CombineOut& out) override {
    compare_calls(plan_.map.combining(0), ticket.result, ticket.mark);
    if (ticket.handle != nullptr) {
      reduce_all(kept_step(*returned_, group_, ticket.result), ticket, returned_->starts(), sent, out);
    } else {
      reduce_all(combine_step(group_, ticket), ticket, found_.starts(), sent, out);
      due_.reset();
    }
  }

  void set_mask(const RankMask& mask) override { masks_.add(mask); }

  void tell_aborted(int missing) override {
    const int named = masks_.is_masked_at_start(missing) ? plan_.rank : missing;
    tell_all(fabric_->waits().end_waits(abort_word(0, false, named) | kAborts));
  }
  void tell_left(const CallOrder& order) override { tell_all(left_word(order.last_sent(), plan_.rank)); }

  Stats stats() const override {
    Stats stats = stats_.read();
    for (int peer = 0; peer < plan_.shape.ranks; ++peer) stats.waited_ns.push_back(fabric_->waits().waited_ns(peer));
    return stats;
  }

 private:
  // What the network reads next is best in the cache.
  HostGroup sending_group_for(std::size_t bytes) const {
    HostGroup group = group_for(bytes);
    if (plan_.map.has_remote_ranks()) group.nontemporal = false;
    return group;
  }
  std::byte* staging(int worker) {
    return reinterpret_cast<std::byte*>(staging_.data()) + static_cast<std::size_t>(worker) * staging_bytes_;
  }

  using RoutedStep = Step<F, HostGroup, SerialLookup, HostOps>;
  RoutedStep dispatch_step(const HostGroup& group, const Ticket& ticket) const {
    return {plan_, *fabric_, group, ticket.routing, ticket.message};
  }
  RoutedStep combine_step(const HostGroup& group, const Ticket& ticket) const {
    return {plan_, *fabric_, group, ticket.routing, ticket.result};
  }

  using KeptStep = Step<F, HostGroup, HandleLookup, HostOps>;
  KeptStep kept_step(const KeptCall& call, const HostGroup& group, Epoch number) const {
    return {call.plan(), *fabric_, group, 0, number, call.lookup()};
  }

  TokenScratch& scratch_of(FixedShare share) { return scratch_[static_cast<std::size_t>(share.index)]; }

  // Runs body(share) on all workers. Throws PeerMissing where one of them says false.
  template <class Body>
  void on_workers(const Body& body) {
    std::vector<std::uint8_t> ok(static_cast<std::size_t>(pool_.workers()), 1);
    pool_.run([&](int worker) {
      ok[static_cast<std::size_t>(worker)] = body(FixedShare{worker, pool_.workers()}) ? 1 : 0;
    });
    for (const std::uint8_t each : ok) require_no_one_missing(each != 0);
  }

  // I10: to every rank that shares this exchange. Reads nothing that a call on another thread may change.
  void tell_all(Epoch word) {
    for (int peer = 0; peer < plan_.shape.ranks; ++peer)
      if (peer != plan_.rank && !masks_.is_masked_at_start(peer))
        fabric_->signal_without_order(group_, peer, plan_.map.aborted(plan_.rank), word);
  }
  void tell_peers() {
    for (int peer = 0; peer < plan_.shape.ranks; ++peer)
      if (peer != plan_.rank && !masks_.is_masked_in_call(peer))
        fabric_->signal_without_order(group_, peer, plan_.map.aborted(plan_.rank), fabric_->waits().abort_value());
  }

  // I17: an error after something has been sent (a user's encoder threw): the round cannot be called again, as the
  // others may have read a part of it. So it ends the exchange on all ranks, and theirs name this one.
  template <class Body>
  void end_exchange_on_error(Operation operation, Epoch epoch, const Body& body) {
    try {
      body();
    } catch (...) {
      fabric_->waits().give_up(operation, epoch);
      tell_peers();
      end().note(fabric_->waits().failure());
      throw;
    }
  }

  void require_no_one_missing(bool ok) {
    if (ok) return;
    tell_peers();
    WaitRecord record = fabric_->waits().failure();
    if (record.phase != Phase::handle) record.missing_rank = fabric_->find_culprit();
    record.absence = fabric_->waits().absence_of(record.missing_rank);
    end_exchange(record);
  }

  // Ranks whose call with this number has another routing end this rank's waits.
  void compare_calls(std::size_t words, Epoch number, std::uint32_t mark) {
    fabric_->waits().compare_calls(reinterpret_cast<const SignalWord*>(fabric_->local(words)), call_word(number, mark));
  }

  // I8: combine_async was called, combine_wait will not be.
  void drain_combine() {
    if (!due_) return;
    on_workers([&](FixedShare share) { return drain_results(combine_step(group_, *due_), share, scratch_of(share)); });
  }
  void give_up_combine() {
    if (!due_) return;
    post_summed(plan_, *fabric_, group_, due_->result);
    due_.reset();
  }

  void send_all(const Ticket& ticket, const DispatchArgs& args) {
    std::vector<std::uint64_t> bytes(static_cast<std::size_t>(plan_.shape.ranks));
    publish_routing(plan_, *fabric_, group_, args, ticket.routing, bytes.data());
    for (int peer = 0; peer < plan_.shape.ranks; ++peer) stats_.add_bytes(peer, bytes[static_cast<std::size_t>(peer)]);
    send_messages(dispatch_step(sending_group(args), ticket), args);
  }

  // I1: without a routing, the word `dispatching` says that this rank has begun.
  void replay_all(const Ticket& ticket, const DispatchArgs& args) {
    const KeptCall& call = *replayed_;
    post_dispatching(call.plan(), *fabric_, group_, ticket.message, ticket.mark);
    send_messages(kept_step(call, sending_group(args), ticket.message), args);
  }

  HostGroup sending_group(const DispatchArgs& args) const {
    const std::size_t copies = static_cast<std::size_t>(std::min(plan_.shape.ranks, plan_.shape.top_k));
    return sending_group_for(static_cast<std::size_t>(args.num_tokens) * copies * plan_.map.message_bytes());
  }
  template <SendStep S>
  void send_messages(const S& sending, const DispatchArgs& args) {
    on_workers([&](FixedShare share) {
      std::vector<std::uint64_t> sent(2 * static_cast<std::size_t>(plan_.shape.ranks));
      SendCounts counted{0, sent.data(), sent.data() + plan_.shape.ranks};
      with_message_maker(args, format_, [&](const auto& maker) {
        send_tokens(sending, maker, args, share, staging(share.index), scratch_of(share), counted);
      });
      stats_.add_non_finite(counted.non_finite);
      for (int peer = 0; peer < plan_.shape.ranks; ++peer) {
        stats_.add_messages(peer, counted.messages[peer]);
        stats_.add_bytes(peer, counted.bytes[peer]);
      }
      return true;
    });
  }

  RowPlaces places_of(const Ticket& ticket) const { return found_.places(plan_, *fabric_, ticket); }
  static RowPlaces places_of(const Ticket& ticket, const KeptCall& call) {
    return {ticket.rows.order, call.starts(), call.source_rows()};
  }

  // From messages to rows, whoever knows the routing.
  template <ReceiveStep S>
  void lay_out(const S& receiving, const Ticket& ticket, const RowPlaces& places, const RowsOut& out) {
    write_metadata(receiving, places, out);
    const SharedTokens shared{ticket.shared.begin, ticket.shared.end};
    on_workers([&](FixedShare share) {
      const bool ok = lay_out_share(receiving, shared, share, places, out, scratch_of(share));
      finish_stores(receiving.group);
      return ok;
    });
    count_received(stats_, receiving.plan, places.starts);
    stats_.add_dispatch();
  }

  void receive_replay(const Ticket& ticket, const RowsOut& out) {
    const KeptCall& call = *replayed_;
    require_no_one_missing(await_dispatching(call.plan(), *fabric_, group_, ticket.message));  // I1
    require_no_one_missing(fabric_->waits().have_same_routing(Operation::dispatch));
    const HostGroup group = group_for(rows_that_came(plan_, call.starts()) * out.row_bytes);
    const auto receiving = kept_step(call, group, ticket.message);
    const RowPlaces places = places_of(ticket, call);
    lay_out(receiving, ticket, places, out);
    pad_rows_of_masked(receiving, call, places, out, scratch_[0].found);
    if (out.handle != nullptr) std::memmove(out.handle, ticket.handle, HandleSizes(plan_).bytes());
  }

  void keep_routing(const Ticket& ticket, const KeptRouting& to) {
    keep_own_part(plan_, *fabric_, ticket, header_, found_.starts(), to);
    on_workers([&](FixedShare share) {
      keep_arrivals(plan_, *fabric_, ticket.routing, share, found_.starts(), to);
      return true;
    });
  }

  HostGroup sending_group(const RowStarts& starts) const {
    return sending_group_for(rows_that_came(plan_, starts) * plan_.map.result_bytes());
  }
  template <ReceiveStep S>
  void send_all_back(const S& sending, const RowPlaces& places, const CombineArgs& args) {
    on_workers([&](FixedShare share) {
      std::vector<std::uint64_t> sent(static_cast<std::size_t>(plan_.shape.ranks));
      const ResultCounts counted{sent.data()};
      std::byte* room = staging(share.index);
      results_.with_ops_of(sending, share.index, [&](const auto& step) {
        if (places.order == RowOrder::by_source)
          send_rows_by_source(step, share, places.starts, places.by_source, args, room, counted);
        else
          send_results(step, share, places.starts, args, room, scratch_of(share), counted);
        return true;
      });
      for (int peer = 0; peer < plan_.shape.ranks; ++peer) stats_.add_bytes(peer, sent[static_cast<std::size_t>(peer)]);
      return true;
    });
  }

  void send_back_kept(const Ticket& ticket, const CombineArgs& args) {
    KeptCall& call = *returned_;
    masks_.begin_combine_with_handle();
    if (packed_) call.number_slots();
    require_no_one_missing(await_summed(call.plan(), *fabric_, group_, ticket.result));
    end_exchange_on_error(Operation::combine, ticket.result, [&] {
      post_combining(call.plan(), *fabric_, group_, ticket.result, ticket.mark);
      send_all_back(kept_step(call, sending_group(call.starts()), ticket.result), places_of(ticket, call), args);
    });
  }

  template <ReceiveStep S>
  void reduce_all(const S& receiving, const Ticket& ticket, const RowStarts& starts, const CombineArgs& sent,
                  const CombineOut& out) {
    on_workers([&](FixedShare share) {
      return results_.with_ops_of(receiving, share.index, [&](const auto& step) {
        return receive_results(step, ticket.num_tokens, share, starts, sent, out, scratch_of(share));
      });
    });
    require_no_one_missing(fabric_->waits().have_same_routing(Operation::combine));
    stats_.add_combine();
    post_summed(receiving.plan, *fabric_, group_, ticket.result);
  }

  Plan plan_;
  AnyFormat format_;
  ResultFormat results_;
  HostGroup group_;
  std::optional<PackedResults> packed_;
  PackedSlots packed_slots_{};
  const HandleHeader header_;  // of a handle, but for what its dispatch was
  CallMasks masks_;
  FoundRows found_;
  std::vector<TokenScratch> scratch_;  // [workers]
  std::vector<Bytes16> staging_;
  std::size_t staging_bytes_ = 0;
  std::unique_ptr<F> fabric_;
  WorkerPool pool_;
  ExchangeStats stats_;
  std::optional<KeptCall> replayed_, returned_;  // what the newest dispatch and combine with a handle were given
  std::optional<Ticket> due_;                    // of the combine whose send_back was called, and reduce was not
};

template <CpuFabric F>
std::unique_ptr<ExchangeSteps> make_cpu_steps(int rank, const Shape& shape, const ExchangeOptions& options,
                                              const HeapMap& map, const typename CpuSteps<F>::MakeFabric& make_fabric) {
  return std::make_unique<CpuSteps<F>>(rank, shape, options, map, make_fabric);
}

}  // namespace ferry::cpu
