// CpuSteps: an exchange of a CPU rank, over any fabric. It runs the steps of a round on the rank's workers: the
// steps in ferry/detail/protocol, which all backends run, and the steps in cpu/steps, which GPUs restate.
// dispatch_calls.h and combine_calls.h have the two operations.
#pragma once

#include <memory>
#include <optional>

#include "cpu/calls/combine_calls.h"
#include "cpu/calls/cpu_rank.h"
#include "cpu/calls/dispatch_calls.h"
#include "cpu/calls/words_aside.h"
#include "exchange/exchange_steps.h"
#include "exchange/sizes/heap_pieces.h"

namespace ferry::cpu {

template <CpuFabric F>
class CpuSteps final : public ExchangeSteps {
 public:
  // `memory`: behind the fabric; null: no other exchange may lie there.
  CpuSteps(int rank, const Shape& shape, const ExchangeOptions& options, const HeapMap& map,
           const MakeFabric<F>& make_fabric, std::shared_ptr<ExchangeMemory> memory)
      : memory_(std::move(memory)),
        rank_(rank, shape, options, map, make_fabric, end()),
        dispatch_(rank_, options, handle_header(rank, shape, options, {.alignment = rank_.plan().alignment})),
        combine_(rank_, options, dispatch_.found()) {}

  void set_exchange_number(std::uint32_t number) override { dispatch_.set_exchange_number(number); }
  void trace_to(CallTrace* call) override { rank_.waits().trace_to(call); }
  void start(const CallOptions&, std::chrono::milliseconds deadline) override { rank_.waits().set_deadline(deadline); }

  void take_format(int format) override {
    rank_.take_format(format);
    dispatch_.take_format(format);
  }
  void check_dispatch_input(const CheckContext& context, const DispatchInput& in, DispatchArgs& args) override {
    check_host_input(context, in, args);
  }
  void check_combine_input(const CheckContext& context, const Ticket& ticket, const CombineInput& in,
                           const CombineArgs&) override {
    if (in.src_info) combine_.check(context, ticket, static_cast<const std::int32_t*>(in.src_info.data));
  }
  std::uint32_t num_rows() const override { return dispatch_.found().rows_with_room(); }

  // I17: before anything moves.
  std::optional<HandleFacts> read_handle(const CheckContext& context, const std::byte* handle,
                                         Operation operation) override {
    const HandleFacts facts = check_handle(context, rank_.plan(), handle);
    operation == Operation::dispatch ? dispatch_.replay(handle) : combine_.keep(handle);
    return facts;
  }

  void require_handles(const CheckContext&) override {}
  const std::byte* arrival_slots() override { return rank_.fabric().local(rank_.plan().map.begin(HeapMap::kMessages)); }

  void send(const Ticket& ticket, const DispatchArgs& args) override {
    rank_.masks().begin_dispatch();
    combine_.drain();
    rank_.begin_step("route");
    dispatch_.route(ticket, args);
    combine_.give_up();
    rank_.begin_step("send");
    dispatch_.send(ticket, args);
  }
  std::int64_t await_counts(const Ticket& ticket) override {
    rank_.begin_step("wait");
    return dispatch_.await_counts(ticket);
  }
  RowCounts row_counts(const Ticket& ticket) const override { return dispatch_.row_counts(ticket); }
  void receive(const Ticket& ticket, const RowsOut& out) override {
    rank_.begin_step("lay out");
    dispatch_.receive(ticket, out);
  }
  void send_back(const Ticket& ticket, const CombineArgs& args) override { combine_.send_back(ticket, args); }
  void reduce(const Ticket& ticket, const CombineArgs& sent, const CombineOut& out) override {
    combine_.reduce(ticket, sent, out);
  }

  void poll() override { dispatch_.tell_overflow(); }

  void set_mask(const RankMask& mask) override { rank_.masks().add(mask); }

  // Pages come again when they are written.
  void give_back(const RankMask& mask, std::size_t bytes) override {
    if constexpr (F::kGivesBack) {
      const HeapMap& map = rank_.plan().map;
      for (const HeapPiece& piece : heap_pieces(map, true))
        given_back_ += rank_.fabric().give_back(piece.begin, piece.bytes);
      if (bytes > map.total()) given_back_ += rank_.fabric().give_back(map.total(), bytes - map.total());
    } else {
      ExchangeSteps::give_back(mask, bytes);
    }
  }
  void bring_words_back() override {
    aside_.bring(rank_.plan().map, rank_.fabric().local(0));
    given_back_ = 0;
  }
  void hold_memory() override { aside_.hold(); }
  std::size_t given_back() const override { return given_back_; }

  std::shared_ptr<ExchangeMemory> memory() const override { return memory_; }
  void leave_memory(bool keeps) override { aside_.leave(rank_.plan().map, rank_.fabric().local(0), keeps); }

  void tell_aborted(int missing) override {
    const int named = rank_.masks().is_masked_at_start(missing) ? rank_.plan().rank : missing;
    const Epoch word = rank_.waits().end_waits(abort_word(0, false, named) | kAborts);
    aside_.if_there([&] { rank_.tell_all(word); });
  }
  void tell_left(const CallOrder& order) override {
    LastSent sent = order.last_sent();
    sent.unsent = !sent.summed && rank_.plan().map.has_late_weights();
    rank_.tell_all(left_word(sent, rank_.plan().rank));
  }

  Stats stats() const override {
    Stats stats = rank_.stats().read();
    for (int peer = 0; peer < rank_.plan().shape.ranks; ++peer)
      stats.waited_ns.push_back(rank_.waits().waited_ns(peer));
    return stats;
  }

 private:
  std::shared_ptr<ExchangeMemory> memory_;
  CpuRank<F> rank_;
  std::size_t given_back_ = 0;
  WordsAside aside_;
  DispatchCalls<F> dispatch_;
  CombineCalls<F> combine_;
};

template <CpuFabric F>
std::unique_ptr<ExchangeSteps> make_cpu_steps(int rank, const Shape& shape, const ExchangeOptions& options,
                                              const HeapMap& map, const MakeFabric<F>& make_fabric,
                                              std::shared_ptr<ExchangeMemory> memory = {}) {
  return std::make_unique<CpuSteps<F>>(rank, shape, options, map, make_fabric, std::move(memory));
}

}  // namespace ferry::cpu
