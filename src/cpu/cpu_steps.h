// CpuSteps: an exchange of a CPU rank, over any fabric. It runs the steps of a round on the rank's workers: those of
// ferry/detail/protocol, which all backends run, and those of cpu/steps, which GPUs restate.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "cpu/exchange_stats.h"
#include "cpu/host_ops.h"
#include "cpu/host_waits.h"
#include "cpu/steps/combine_receive.h"
#include "cpu/steps/combine_send.h"
#include "cpu/steps/packed_results.h"
#include "cpu/steps/route.h"
#include "cpu/steps/row_starts.h"
#include "cpu/steps/serial_lookup.h"
#include "cpu/worker_pool.h"
#include "exchange/exchange_steps.h"
#include "exchange/plan.h"
#include "exchange/sizes.h"
#include "ferry/detail/protocol/dispatch_receive.h"
#include "ferry/detail/protocol/dispatch_send.h"

namespace ferry::cpu {

// A fabric for CPU ranks also has `waits()`: deadline, failure record, waiting times. `find_culprit` names the rank
// that a failure goes back to; a fabric may know more than the abort words of one exchange say.
template <class F>
concept CpuFabric = SerialFabric<F> && requires(F& f, const F& c) {
  { f.waits() } -> std::same_as<HostWaits&>;
  { c.find_culprit() } -> std::same_as<int>;
};

template <CpuFabric F>
class CpuSteps final : public ExchangeSteps {
 public:
  // make_fabric(rank, offset of the abort words, masked): rank as the protocol sees it.
  using MakeFabric = std::function<std::unique_ptr<F>(int, std::size_t, const std::uint8_t*)>;

  CpuSteps(int rank, const Shape& shape, const ExchangeOptions& options, const HeapMap& map,
           const MakeFabric& make_fabric)
      : plan_(make_plan(shape, options, map, rank)),
        format_(options.format),
        masked_(static_cast<std::size_t>(plan_.shape.ranks)),
        start_rows_(static_cast<std::size_t>(row_start_words(plan_))),
        starts_(row_starts_at(plan_, start_rows_.data())),
        scratch_(static_cast<std::size_t>(options.workers)),
        pool_(options.workers),
        stats_(plan_.shape.ranks, plan_.local_experts(), row_bytes(row_layout(shape, options, rank), options.format)) {
    if (plan_.map.has_remote_ranks()) {
      packed_slots_ = packed_.emplace(plan_).slots();
      plan_.packed = &packed_slots_;
    }
    plan_.masked = masked_.data();
    if (!options.skip_a2a) next_mask_ = options.mask;
    latch_mask();
    const std::size_t staging = std::max(map.message_bytes(), map.result_bytes());
    staging_bytes_ = (staging + sizeof(Bytes16) - 1) / sizeof(Bytes16) * sizeof(Bytes16);
    staging_.resize(staging_bytes_ / sizeof(Bytes16) * static_cast<std::size_t>(options.workers));
    fabric_ = make_fabric(plan_.rank, map.aborted(0), masked_.data());
  }

  void start(const CallOptions&, std::chrono::milliseconds deadline) override {
    fabric_->waits().set_deadline(deadline);
  }

  void check_dispatch_input(const CheckContext& context, const DispatchInput& in, DispatchArgs& args) override {
    check_host_input(context, in, args);
  }
  void check_combine_input(const CheckContext& context, const Ticket& ticket, const CombineInput& in,
                           const CombineArgs&) override {
    if (in.src_info) check_src_info(context, ticket, static_cast<const std::int32_t*>(in.src_info.data));
  }
  std::uint32_t num_rows() const override { return starts_.group[plan_.groups()]; }

  void send(const Ticket& ticket, const DispatchArgs& args) override {
    latch_mask();
    drain_combine();
    stats_.add_dropped(route_entries(plan_, *fabric_, args, ticket.routing));
    give_up_combine();
    end_exchange_on_error(Operation::dispatch, ticket.message, [&] { send_all(ticket, args); });
  }

  void receive(const Ticket& ticket, const RowsOut& out) override {
    const Epoch routing = ticket.routing;
    require_no_one_missing(await_routing(plan_, *fabric_, group_, routing));  // I1, I2
    const TokenRange shared = ticket.shared;
    find_row_starts(plan_, *fabric_, routing, shared.end - shared.begin, starts_);
    if (packed_) packed_->number_slots(plan_, *fabric_, routing);
    write_row_metadata(plan_, group_, HostOps{}, Block{0, 1}, starts_, out);
    const HostGroup group = group_for(starts_.group[plan_.groups()] * out.row_bytes);
    on_workers([&](Block block) {
      const auto receiving = dispatch_step(group, ticket);
      const bool ok =
          lay_out_shared_rows(receiving, format_, {shared.begin, shared.end}, block, starts_, out, scratch_of(block)) &&
          lay_out_rows(receiving, format_, block, starts_, out, NoLog{}, scratch_of(block));
      finish_stores(group);
      return ok;
    });
    count_received(routing);
    stats_.add_dispatch();
  }

  void send_back(const Ticket& ticket, const CombineArgs& args) override {
    require_no_one_missing(await_summed(plan_, *fabric_, group_, ticket.result));
    end_exchange_on_error(Operation::combine, ticket.result, [&] { send_all_back(ticket, args); });
    due_ = ticket;
  }

  void reduce(const Ticket& ticket, const CombineArgs& sent, const CombineOut& out) override {
    on_workers([&](Block block) {
      return receive_results(combine_step(group_, ticket), ticket.num_tokens, block, starts_, sent, out,
                             scratch_of(block));
    });
    due_.reset();
    stats_.add_combine();
    post_summed(plan_, *fabric_, group_, ticket.result);
  }

  void set_mask(const RankMask& mask) override { next_mask_ = mask; }

  Stats stats() const override {
    Stats stats = stats_.read();
    for (int peer = 0; peer < plan_.shape.ranks; ++peer) stats.waited_ns.push_back(fabric_->waits().waited_ns(peer));
    return stats;
  }

 private:
  // What one call writes goes past the cache from this size on, about half of what a core has to itself: the lines it
  // overwrites are rarely there any more (`ferry bench --tokens 8,32,64` shows it).
  static constexpr std::size_t kBytesPastCache = std::size_t{512} << 10;
  HostGroup group_for(std::size_t bytes) const {
    HostGroup group;
    group.nontemporal = bytes >= kBytesPastCache;
    return group;
  }
  // What the network reads next is best in the cache.
  HostGroup sending_group_for(std::size_t bytes) const {
    HostGroup group = group_for(bytes);
    if (plan_.map.has_remote_ranks()) group.nontemporal = false;
    return group;
  }
  // I11: the mask of a round is the one at its dispatch; it only grows.
  void latch_mask() {
    for (int peer = 0; peer < plan_.shape.ranks; ++peer)
      if (is_masked(next_mask_, peer)) masked_[static_cast<std::size_t>(peer)] = 1;
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

  TokenScratch& scratch_of(Block block) { return scratch_[static_cast<std::size_t>(block.index)]; }

  // Runs body(block) on all workers. Throws PeerMissing where one of them says false.
  template <class Body>
  void on_workers(const Body& body) {
    std::vector<std::uint8_t> ok(static_cast<std::size_t>(pool_.workers()), 1);
    pool_.run([&](int worker) { ok[static_cast<std::size_t>(worker)] = body(Block{worker, pool_.workers()}) ? 1 : 0; });
    for (const std::uint8_t each : ok) require_no_one_missing(each != 0);
  }

  // I10
  void tell_peers() {
    for (int peer = 0; peer < plan_.shape.ranks; ++peer)
      if (peer != plan_.rank && masked_[static_cast<std::size_t>(peer)] == 0)
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
      end_exchange(fabric_->waits().failure());
      throw;
    }
  }

  void require_no_one_missing(bool ok) {
    if (ok) return;
    tell_peers();
    WaitRecord record = fabric_->waits().failure();
    record.missing_rank = fabric_->find_culprit();
    end_exchange(record);
    throw PeerMissing(record, describe(record));
  }

  // I8: combine_async was called, combine_wait will not be.
  void drain_combine() {
    if (!due_) return;
    on_workers([&](Block block) { return drain_results(combine_step(group_, *due_), block, scratch_of(block)); });
  }
  void give_up_combine() {
    if (!due_) return;
    post_summed(plan_, *fabric_, group_, due_->result);
    due_.reset();
  }

  void send_all(const Ticket& ticket, const DispatchArgs& args) {
    std::vector<std::uint64_t> bytes(static_cast<std::size_t>(plan_.shape.ranks));
    publish_routing(plan_, *fabric_, group_, args.num_tokens, ticket.routing, bytes.data());
    for (int peer = 0; peer < plan_.shape.ranks; ++peer) stats_.add_bytes(peer, bytes[static_cast<std::size_t>(peer)]);
    const std::size_t copies = static_cast<std::size_t>(std::min(plan_.shape.ranks, plan_.shape.top_k));
    const HostGroup group =
        sending_group_for(static_cast<std::size_t>(args.num_tokens) * copies * plan_.map.message_bytes());
    on_workers([&](Block block) {
      std::vector<std::uint64_t> sent(2 * static_cast<std::size_t>(plan_.shape.ranks));
      SendCounts counted{0, sent.data(), sent.data() + plan_.shape.ranks};
      send_tokens(dispatch_step(group, ticket), format_, args, block, staging(block.index), scratch_of(block), counted);
      stats_.add_non_finite(counted.non_finite);
      for (int peer = 0; peer < plan_.shape.ranks; ++peer) {
        stats_.add_messages(peer, counted.messages[peer]);
        stats_.add_bytes(peer, counted.bytes[peer]);
      }
      return true;
    });
  }

  void count_received(Epoch routing) {
    for (int source = 0; source < plan_.shape.ranks; ++source) {
      if (masked_[static_cast<std::size_t>(source)] != 0) continue;
      const auto* counts = reinterpret_cast<const std::uint32_t*>(fabric_->local(plan_.map.counts(routing, source)));
      for (int local = 0; local < plan_.local_experts(); ++local) stats_.add_received(source, local, counts[local]);
    }
  }

  void check_src_info(const CheckContext& context, const Ticket& ticket, const std::int32_t* src_info) const {
    const TokenRange shared = ticket.shared;
    for (int token = shared.begin; token < shared.end; ++token)
      check_src_info_row(context, src_info, starts_.group[0] + static_cast<std::uint32_t>(token - shared.begin),
                         context.rank, ticket.num_tokens, token, context.shape.top_k);
    LocalRows found;
    for (int source = 0; source < plan_.shape.ranks; ++source) {
      const int num_tokens = static_cast<int>(starts_.tokens[source]);
      for (int token = 0; token < num_tokens; ++token) {
        const TokenAt at{source, token};
        SerialLookup{}.local_rows(group_, plan_, starts_, at, entries_of(plan_, *fabric_, ticket.routing, at), found);
        for (int i = 0; i < found.count; ++i)
          check_src_info_row(context, src_info, found.row[i], source, num_tokens, token, found.k[i]);
      }
    }
  }

  void send_all_back(const Ticket& ticket, const CombineArgs& args) {
    const HostGroup group = sending_group_for(starts_.group[plan_.groups()] * plan_.map.result_bytes());
    on_workers([&](Block block) {
      std::vector<std::uint64_t> sent(static_cast<std::size_t>(plan_.shape.ranks));
      send_results(combine_step(group, ticket), block, starts_, args, staging(block.index), scratch_of(block),
                   ResultCounts{sent.data()});
      for (int peer = 0; peer < plan_.shape.ranks; ++peer) stats_.add_bytes(peer, sent[static_cast<std::size_t>(peer)]);
      return true;
    });
  }

  Plan plan_;
  AnyFormat format_;
  HostGroup group_;
  std::optional<PackedResults> packed_;
  PackedSlots packed_slots_{};
  std::vector<std::uint8_t> masked_;  // of the newest round
  RankMask next_mask_;
  std::vector<std::uint32_t> start_rows_;
  RowStarts starts_;
  std::vector<TokenScratch> scratch_;  // [workers]
  std::vector<Bytes16> staging_;
  std::size_t staging_bytes_ = 0;
  std::unique_ptr<F> fabric_;
  WorkerPool pool_;
  ExchangeStats stats_;
  std::optional<Ticket> due_;  // of the combine whose send_back was called, and reduce was not
};

template <CpuFabric F>
std::unique_ptr<ExchangeSteps> make_cpu_steps(int rank, const Shape& shape, const ExchangeOptions& options,
                                              const HeapMap& map, const typename CpuSteps<F>::MakeFabric& make_fabric) {
  return std::make_unique<CpuSteps<F>>(rank, shape, options, map, make_fabric);
}

}  // namespace ferry::cpu
