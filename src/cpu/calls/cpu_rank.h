// CpuRank: what all calls of a CPU rank's exchange share: plan, fabric and workers, whom it tells what, and how a wait
// that fails ends the exchange.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "cpu/calls/call_masks.h"
#include "cpu/calls/exchange_stats.h"
#include "cpu/fabric/cpu_fabric.h"
#include "cpu/fabric/host_group.h"
#include "cpu/fabric/worker_pool.h"
#include "cpu/steps/packed_results.h"
#include "exchange/exchange_end.h"
#include "exchange/sizes/plan.h"
#include "exchange/sizes/sizes.h"
#include "ferry/detail/base/copy.h"
#include "ferry/detail/layout/call_word.h"
#include "ferry/detail/protocol/contracts/token_lookup.h"
#include "ferry/detail/protocol/contracts/work_share.h"

namespace ferry::cpu {

// make_fabric(rank, offset of the abort words, masked): rank as the protocol sees it.
template <CpuFabric F>
using MakeFabric = std::function<std::unique_ptr<F>(int, std::size_t, const std::uint8_t*)>;

template <CpuFabric F>
class CpuRank {
 public:
  CpuRank(int rank, const Shape& shape, const ExchangeOptions& options, const HeapMap& map,
          const MakeFabric<F>& make_fabric, ExchangeEnd& end)
      : plan_(make_plan(shape, options, map, rank)),
        in_format_(in_formats(shape, options, map, rank)),
        chooses_reduction_(options.reduction == Reduction::either),
        masks_(options, plan_.shape.ranks),
        scratch_(static_cast<std::size_t>(options.workers)),
        pool_(options.workers),
        stats_(plan_.shape.ranks, plan_.local_experts(), row_bytes_in(shape, options, rank)),
        end_(end) {
    if (plan_.map.has_remote_ranks()) {
      packed_slots_ = packed_.emplace(plan_).slots();
      plan_.packed = &packed_slots_;
    }
    plan_.masked = masks_.of_dispatch().data();
    const std::size_t most = std::max(map.message_slot_bytes(), map.result_bytes());
    staging_bytes_ = (most + sizeof(Bytes16) - 1) / sizeof(Bytes16) * sizeof(Bytes16);
    staging_.resize(staging_bytes_ / sizeof(Bytes16) * static_cast<std::size_t>(options.workers));
    fabric_ = make_fabric(plan_.rank, map.aborted(0), masks_.of_call().data());
  }
  CpuRank(const CpuRank&) = delete;
  CpuRank& operator=(const CpuRank&) = delete;

  // Of the newest dispatch (DispatchInput::format).
  void take_format(int format) {
    const InFormat& taken = in_format_[static_cast<std::size_t>(format)];
    plan_.map.set_message_bytes(taken.message_bytes);
    plan_.alignment = taken.alignment;
    stats_.take_format(format);
  }

  const Plan& plan() const { return plan_; }
  F& fabric() const { return *fabric_; }
  HostWaits& waits() const { return fabric_->waits(); }
  const HostGroup& group() const { return group_; }
  // Of the call, where a Trace records it. The step before ends.
  void begin_step(const char* name) const {
    if (CallTrace* call = waits().trace()) call->begin_step(name);
  }
  CallMasks& masks() { return masks_; }
  const CallMasks& masks() const { return masks_; }
  ExchangeStats& stats() { return stats_; }
  const ExchangeStats& stats() const { return stats_; }

  // What the network reads next is best in the cache.
  HostGroup sending_group_for(std::size_t bytes) const {
    HostGroup group = group_for(bytes);
    if (plan_.map.has_remote_ranks()) group.nontemporal = false;
    return group;
  }

  // A worker has room for one message or result (staging), and for the answers about one token (scratch).
  std::byte* staging(FixedShare share) {
    return reinterpret_cast<std::byte*>(staging_.data()) + static_cast<std::size_t>(share.index) * staging_bytes_;
  }
  TokenScratch& scratch(FixedShare share) { return scratch_[static_cast<std::size_t>(share.index)]; }

  // I9: where results are packed, by the tables of a dispatch that has come. Where each combine says how it sums, its
  // own call of take_reduction numbers them: the tables are there until the dispatch after the next.
  void number_slots(Epoch routing) {
    if (packed_ && !chooses_reduction_) packed_->number_slots(plan_, *fabric_, routing);
  }
  bool chooses_reduction() const { return chooses_reduction_; }
  // Of the newest combine without a handle, of the dispatch with that number.
  void take_reduction(bool exact, Epoch routing) {
    if (!chooses_reduction_) return;
    plan_.exact = exact;
    if (packed_) packed_->number_slots(plan_, *fabric_, routing);
  }

  // What was sent to each rank.
  void add_bytes(const std::vector<std::uint64_t>& sent) {
    for (std::size_t peer = 0; peer < sent.size(); ++peer) stats_.add_bytes(static_cast<int>(peer), sent[peer]);
  }

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

  // I17: an error after something has been sent (a user's encoder threw): the round cannot be called again, as the
  // others may have read a part of it. So it ends the exchange on all ranks, and theirs name this one.
  template <class Body>
  void end_exchange_on_error(Operation operation, Epoch epoch, const Body& body) {
    try {
      body();
    } catch (...) {
      fabric_->waits().give_up(operation, epoch);
      tell_peers();
      end_.note(fabric_->waits().failure());
      throw;
    }
  }

  void require_no_one_missing(bool ok) {
    if (ok) return;
    tell_peers();
    WaitRecord record = fabric_->waits().failure();
    if (record.phase != Phase::handle) record.missing_rank = fabric_->find_culprit();
    record.absence = fabric_->absence_of(record.missing_rank);
    ExchangeEnd::raise(*end_.note(record));
  }

  // This rank's waits end when another rank makes call `number` with another routing.
  void compare_calls(std::size_t words, Epoch number, std::uint32_t mark) {
    fabric_->waits().compare_calls(reinterpret_cast<const SignalWord*>(fabric_->local(words)), call_word(number, mark));
  }

 private:
  // What differs between the formats of an exchange.
  struct InFormat {
    std::size_t message_bytes;
    int alignment;
  };
  static std::vector<InFormat> in_formats(const Shape& shape, const ExchangeOptions& options, const HeapMap& map,
                                          int rank) {
    std::vector<InFormat> all;
    for (int format = 0; format < num_formats(options); ++format)
      all.push_back({make_heap_map(shape, options_in(options, format), rank, map.has_remote_ranks()).message_bytes(),
                     row_layout(shape, options, rank, format).alignment});
    return all;
  }

  void tell_peers() {
    for (int peer = 0; peer < plan_.shape.ranks; ++peer)
      if (peer != plan_.rank && !masks_.is_masked_in_call(peer))
        fabric_->signal_without_order(group_, peer, plan_.map.aborted(plan_.rank), fabric_->waits().abort_value());
  }

  Plan plan_;
  const std::vector<InFormat> in_format_;  // [formats]
  const bool chooses_reduction_;
  HostGroup group_;
  std::optional<PackedResults> packed_;
  PackedSlots packed_slots_{};
  CallMasks masks_;
  std::vector<TokenScratch> scratch_;  // [workers]
  std::vector<Bytes16> staging_;
  std::size_t staging_bytes_ = 0;
  std::unique_ptr<F> fabric_;
  WorkerPool pool_;
  ExchangeStats stats_;
  ExchangeEnd& end_;
};

}  // namespace ferry::cpu
