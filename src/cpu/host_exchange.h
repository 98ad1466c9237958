// HostExchange: the exchange of a CPU rank, over any fabric. It checks what the caller gives, keeps the round's state,
// and runs the phases of protocol/ on the rank's workers.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "cpu/exchange_stats.h"
#include "cpu/host_group.h"
#include "cpu/host_waits.h"
#include "cpu/worker_pool.h"
#include "exchange/exchange_backend.h"
#include "exchange/plan.h"
#include "exchange/round_state.h"
#include "exchange/sizes.h"
#include "exchange/validate.h"
#include "ferry/detail/protocol/combine.h"
#include "ferry/detail/protocol/dispatch.h"
#include "ferry/detail/protocol/packed_results.h"

namespace ferry::cpu {

// A fabric for CPU ranks also has `waits()`: deadline, failure record, waiting times. `find_culprit` names the rank
// that a failure goes back to; a fabric may know more than the abort words of one exchange say.
template <class F>
concept CpuFabric = SerialFabric<F> && requires(F& f, const F& c) {
  { f.waits() } -> std::same_as<HostWaits&>;
  { c.find_culprit() } -> std::same_as<int>;
};

template <CpuFabric F>
class HostExchange final : public ExchangeBackend {
 public:
  // make_fabric(rank, offset of the abort words, masked): rank as the protocol sees it.
  using MakeFabric = std::function<std::unique_ptr<F>(int, std::size_t, const std::uint8_t*)>;

  HostExchange(int rank, const Shape& shape, const ExchangeOptions& options, const HeapMap& map,
               const MakeFabric& make_fabric)
      : rank_(rank),
        shape_(shape),
        options_(options),
        layout_(row_layout(shape, options, rank)),
        scratch_(static_cast<std::size_t>(options.workers)),
        pool_(options.workers),
        stats_(protocol_shape(shape, options, rank).ranks, layout_.groups - (options.fused_shared_expert ? 1 : 0),
               row_bytes(layout_, options)) {
    plan_ = make_plan(shape, options, map, rank);
    if (plan_.map.has_remote_ranks()) {
      packed_slots_ = packed_.emplace(plan_).slots();
      plan_.packed = &packed_slots_;
    }
    masked_.resize(static_cast<std::size_t>(plan_.shape.ranks));
    plan_.masked = masked_.data();
    next_mask_ = options.mask;
    latch_mask();
    const std::size_t experts = static_cast<std::size_t>(plan_.local_experts());
    const std::size_t groups = static_cast<std::size_t>(layout_.groups);
    start_rows_.resize(static_cast<std::size_t>(plan_.shape.ranks) * experts + 3 * groups + 1 +
                       static_cast<std::size_t>(plan_.shape.ranks) + 1);
    std::uint32_t* next = start_rows_.data();
    starts_.of_source = std::exchange(next, next + static_cast<std::size_t>(plan_.shape.ranks) * experts);
    starts_.group = std::exchange(next, next + groups + 1);
    starts_.filled = std::exchange(next, next + groups);
    starts_.tiles = std::exchange(next, next + groups);
    starts_.tokens = next;
    const std::size_t staging = std::max(map.message_bytes(), map.result_bytes());
    staging_bytes_ = (staging + sizeof(Bytes16) - 1) / sizeof(Bytes16) * sizeof(Bytes16);
    staging_.resize(staging_bytes_ / sizeof(Bytes16) * static_cast<std::size_t>(options.workers));
    fabric_ = make_fabric(plan_.rank, map.aborted(0), masked_.data());
  }

  void dispatch_async(const DispatchInput& in, const CallOptions& call) override {
    round_.require_can_dispatch(rank_, "dispatch_async");
    begin(call);
    send(check_input(in));
    round_.stage = Stage::sent;
  }

  void dispatch_wait(const DispatchOutput& out, const CallOptions& call) override {
    round_.require_stage(rank_, "dispatch_wait", Stage::sent, "a dispatch_async");
    begin(call);
    receive(check_dispatch_output(context(), out));
    round_.stage = Stage::open;
  }

  void dispatch(const DispatchInput& in, const DispatchOutput& out, const CallOptions& call) override {
    round_.require_can_dispatch(rank_, "dispatch");
    begin(call);
    const DispatchArgs args = check_input(in);
    const RowsOut rows = check_dispatch_output(context(), out);
    send(args);
    round_.stage = Stage::sent;
    receive(rows);
    round_.stage = Stage::open;
  }

  void combine_async(const CombineInput& in, const CallOptions& call) override {
    round_.require_stage(rank_, "combine_async", Stage::open, "a dispatch");
    begin(call);
    send_back(check_rows(in));
    round_.stage = Stage::returning;
  }

  void combine_wait(const CombineOutput& out, const CallOptions& call) override {
    round_.require_stage(rank_, "combine_wait", Stage::returning, "a combine_async");
    begin(call);
    sum(check_combine_output(context(), out, num_tokens_));
    round_.stage = Stage::closed;
  }

  void combine(const CombineInput& in, const CombineOutput& out, const CallOptions& call) override {
    round_.require_stage(rank_, "combine", Stage::open, "a dispatch");
    begin(call);
    const CombineArgs args = check_rows(in);
    const CombineOut sums = check_combine_output(context(), out, num_tokens_);
    send_back(args);
    round_.stage = Stage::returning;
    sum(sums);
    round_.stage = Stage::closed;
  }

  void check() override { round_.require_not_broken(); }

  void add_to_mask(const RankMask& mask) override {
    check_added_mask(context(), mask);
    next_mask_.resize(static_cast<std::size_t>(shape_.ranks));
    for (std::size_t peer = 0; peer < mask.size(); ++peer) next_mask_[peer] = next_mask_[peer] || mask[peer];
  }

  const Shape& shape() const override { return shape_; }
  const ExchangeOptions& options() const override { return options_; }
  const RowLayout& layout() const override { return layout_; }
  int rank() const override { return rank_; }
  std::size_t memory_bytes() const override { return plan_.map.total(); }
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
  static std::uint64_t row_bytes(const RowLayout& layout, const ExchangeOptions& options) {
    return static_cast<std::uint64_t>(layout.payload_row_bytes) +
           static_cast<std::uint64_t>(layout.scales_per_row) * static_cast<std::uint64_t>(options.format.scale_bytes());
  }

  CheckContext context() const { return {rank_, shape_, options_, layout_}; }

  void begin(const CallOptions& call) {
    fabric_->waits().set_deadline(call.deadline.count() > 0 ? call.deadline : options_.deadline);
  }

  // I11: the mask of a round is the one at its dispatch; it only grows.
  void latch_mask() {
    if (options_.skip_a2a) return;
    for (int peer = 0; peer < shape_.ranks; ++peer)
      if (is_masked(next_mask_, peer)) masked_[static_cast<std::size_t>(peer)] = 1;
  }

  DispatchArgs check_input(const DispatchInput& in) const {
    DispatchArgs args = check_dispatch_input(context(), in);
    check_topk_ids(context(), args);
    args.input_scale = check_input_scale(context(), in.input_scale);
    const TokenRange shared = shared_tokens(options_, rank_, args.num_tokens);
    args.shared_begin = shared.begin;
    args.shared_end = shared.end;
    return args;
  }

  std::byte* staging(int worker) {
    return reinterpret_cast<std::byte*>(staging_.data()) + static_cast<std::size_t>(worker) * staging_bytes_;
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
      round_.stage = Stage::broken;
      round_.broken_by = fabric_->waits().failure();
      throw;
    }
  }

  void require_no_one_missing(bool ok) {
    if (ok) return;
    tell_peers();
    WaitRecord record = fabric_->waits().failure();
    record.missing_rank = fabric_->find_culprit();
    round_.stage = Stage::broken;
    round_.broken_by = record;
    throw PeerMissing(record, describe(record));
  }

  void send(const DispatchArgs& args) {
    latch_mask();
    if (round_.stage == Stage::returning)  // I8: combine_async was called, combine_wait will not be
      on_workers([&](Block block) {
        return drain_results(plan_, *fabric_, group_, round_.dispatched, block, scratch_of(block));
      });
    const Epoch epoch = round_.dispatched + 1;
    require_no_one_missing(await_buffers(plan_, *fabric_, group_, epoch));
    stats_.add_dropped(route_entries(plan_, *fabric_, args, epoch));
    end_exchange_on_error(Operation::dispatch, epoch, [&] { send_all(args, epoch); });
    round_.dispatched = epoch;
    num_tokens_ = args.num_tokens;
    shared_ = {args.shared_begin, args.shared_end};
  }

  void send_all(const DispatchArgs& args, Epoch epoch) {
    std::vector<std::uint64_t> bytes(static_cast<std::size_t>(plan_.shape.ranks));
    publish_routing(plan_, *fabric_, group_, args.num_tokens, epoch, bytes.data());
    for (int peer = 0; peer < plan_.shape.ranks; ++peer) stats_.add_bytes(peer, bytes[static_cast<std::size_t>(peer)]);
    const std::size_t copies = static_cast<std::size_t>(std::min(plan_.shape.ranks, plan_.shape.top_k));
    const HostGroup group =
        sending_group_for(static_cast<std::size_t>(args.num_tokens) * copies * plan_.map.message_bytes());
    on_workers([&](Block block) {
      std::vector<std::uint64_t> sent(2 * static_cast<std::size_t>(plan_.shape.ranks));
      SendCounts counted{0, 0, sent.data(), sent.data() + plan_.shape.ranks};
      send_tokens(plan_, *fabric_, group, options_.format, args, epoch, block, staging(block.index), scratch_of(block),
                  counted);
      stats_.add_non_finite(counted.non_finite);
      for (int peer = 0; peer < plan_.shape.ranks; ++peer) {
        stats_.add_messages(peer, counted.messages[peer]);
        stats_.add_bytes(peer, counted.bytes[peer]);
      }
      return true;
    });
  }

  void receive(const RowsOut& out) {
    const Epoch epoch = round_.dispatched;
    require_no_one_missing(await_routing(plan_, *fabric_, group_, epoch));
    find_row_starts(plan_, *fabric_, epoch, shared_.end - shared_.begin, starts_);
    if (packed_) packed_->number_slots(plan_, *fabric_, epoch);
    write_row_metadata(plan_, group_, Block{0, 1}, starts_, out);
    const HostGroup group = group_for(starts_.group[layout_.groups] * out.row_bytes);
    on_workers([&](Block block) {
      const bool ok =
          lay_out_shared_rows(plan_, *fabric_, group, options_.format, shared_.begin, shared_.end, epoch, block,
                              starts_, out, scratch_of(block)) &&
          lay_out_rows(plan_, *fabric_, group, options_.format, epoch, block, starts_, out, scratch_of(block));
      finish_stores(group);
      return ok;
    });
    count_received(epoch);
    stats_.add_dispatch();
    give_back(epoch - 1);  // an abandoned round's
  }

  void count_received(Epoch epoch) {
    for (int source = 0; source < plan_.shape.ranks; ++source) {
      if (masked_[static_cast<std::size_t>(source)] != 0) continue;
      const auto* counts = reinterpret_cast<const std::uint32_t*>(fabric_->local(plan_.map.counts(epoch, source)));
      for (int local = 0; local < plan_.local_experts(); ++local) stats_.add_received(source, local, counts[local]);
    }
  }

  CombineArgs check_rows(const CombineInput& in) const {
    CombineArgs args = check_combine_input(context(), in, num_tokens_, starts_.group[layout_.groups]);
    args.shared_begin = shared_.begin;
    args.shared_end = shared_.end;
    if (in.src_info) check_src_info(static_cast<const std::int32_t*>(in.src_info.data));
    return args;
  }

  void check_src_info(const std::int32_t* src_info) const {
    const CheckContext checked = context();
    for (int token = shared_.begin; token < shared_.end; ++token)
      check_src_info_row(checked, src_info, starts_.group[0] + static_cast<std::uint32_t>(token - shared_.begin), rank_,
                         num_tokens_, token, shape_.top_k);
    LocalRows found;
    for (int source = 0; source < plan_.shape.ranks; ++source) {
      const int num_tokens = static_cast<int>(starts_.tokens[source]);
      for (int token = 0; token < num_tokens; ++token) {
        const TokenAt at{source, token};
        find_local_rows(group_, plan_, starts_, at, entries_of(plan_, *fabric_, round_.dispatched, at), found);
        for (int i = 0; i < found.count; ++i)
          check_src_info_row(checked, src_info, found.row[i], source, num_tokens, token, found.k[i]);
      }
    }
  }

  void send_back(const CombineArgs& args) {
    end_exchange_on_error(Operation::combine, round_.dispatched, [&] { send_all_back(args); });
    returning_ = args;
  }

  void send_all_back(const CombineArgs& args) {
    const HostGroup group = sending_group_for(starts_.group[layout_.groups] * plan_.map.result_bytes());
    on_workers([&](Block block) {
      std::vector<std::uint64_t> sent(static_cast<std::size_t>(plan_.shape.ranks));
      send_results(plan_, *fabric_, group, round_.dispatched, block, starts_, args, staging(block.index),
                   scratch_of(block), ResultCounts{sent.data()});
      for (int peer = 0; peer < plan_.shape.ranks; ++peer) stats_.add_bytes(peer, sent[static_cast<std::size_t>(peer)]);
      return true;
    });
  }

  void sum(const CombineOut& out) {
    const Epoch epoch = round_.dispatched;
    on_workers([&](Block block) {
      return receive_results(plan_, *fabric_, group_, epoch, num_tokens_, block, starts_, returning_, out,
                             scratch_of(block));
    });
    stats_.add_combine();
    give_back(epoch);
  }

  void give_back(Epoch epoch) {
    if (epoch <= round_.combined) return;
    post_consumed(plan_, *fabric_, group_, epoch);
    round_.combined = epoch;
  }

  int rank_;
  Shape shape_;
  ExchangeOptions options_;
  RowLayout layout_;
  HostGroup group_;
  Plan plan_;
  std::optional<PackedResults> packed_;
  PackedSlots packed_slots_{};
  std::vector<std::uint8_t> masked_;
  RankMask next_mask_;
  std::vector<std::uint32_t> start_rows_;
  RowStarts starts_;
  std::vector<TokenScratch> scratch_;  // [workers]
  std::vector<Bytes16> staging_;
  std::size_t staging_bytes_ = 0;
  std::unique_ptr<F> fabric_;
  WorkerPool pool_;
  ExchangeStats stats_;
  RoundState round_;
  int num_tokens_ = 0;
  TokenRange shared_{0, 0};
  CombineArgs returning_;
};

template <CpuFabric F>
std::unique_ptr<ExchangeBackend> make_host_exchange(int rank, const Shape& shape, const ExchangeOptions& options,
                                                    const HeapMap& map,
                                                    const typename HostExchange<F>::MakeFabric& make_fabric) {
  return std::make_unique<HostExchange<F>>(rank, shape, options, map, make_fabric);
}

}  // namespace ferry::cpu
