// WrongWorld: a thread world whose exchanges do one thing wrong. A case that passes on it checks nothing of that thing.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "exchange/exchange_steps.h"
#include "ferry/world.h"

namespace ferry::test {

// What is wrong. Functions that are not given change nothing.
struct Damage {
  std::function<void(WorldCapabilities&)> capabilities{};
  std::function<void(ExchangeOptions&)> options{};  // with which the exchange is made
  std::function<void(Stats&)> stats{};
  // Whether bytes that are sent in a half of this ticket are not counted.
  std::function<bool(Operation, const Ticket&)> uncounted{};
  std::function<void(const Ticket&, const DispatchArgs&)> before_send{};
  std::function<void(const Ticket&, const DispatchArgs&)> after_send{};
  std::function<void(RowsOut&)> rows{};  // what a dispatch is told to fill
  std::function<void(const RowsOut&)> after_receive{};
  std::function<void(RowCounts&, const Ticket&)> row_counts{};
  std::function<void(CombineArgs&)> sums{};  // what a combine is told of its sums
  std::function<void(const Ticket&, const CombineArgs&)> before_send_back{};
  std::function<void(const Ticket&, const CombineArgs&)> after_send_back{};
  std::function<void(const Ticket&, const CombineArgs&, const CombineOut&)> after_reduce{};
  bool cannot_release = false;
  bool keeps_no_words = false;
  std::size_t given_back = 0;
};

class WrongSteps final : public ExchangeSteps {
 public:
  WrongSteps(std::unique_ptr<ExchangeSteps> steps, const Damage& damage)
      : ExchangeSteps(steps->shared_end()), steps_(std::move(steps)), damage_(damage) {}

  void enter() override { steps_->enter(); }
  void leave() noexcept override { steps_->leave(); }
  void trace_to(CallTrace* trace) override { steps_->trace_to(trace); }
  void set_exchange_number(std::uint32_t number) override { steps_->set_exchange_number(number); }
  void start(const CallOptions& call, std::chrono::milliseconds deadline) override { steps_->start(call, deadline); }
  void take_format(int format) override { steps_->take_format(format); }
  void check_dispatch_input(const CheckContext& context, const DispatchInput& in, DispatchArgs& args) override {
    steps_->check_dispatch_input(context, in, args);
  }
  void check_rows(const CheckContext& context, const DispatchOutput& out) override { steps_->check_rows(context, out); }
  void check_combine_input(const CheckContext& context, const Ticket& ticket, const CombineInput& in,
                           const CombineArgs& args) override {
    steps_->check_combine_input(context, ticket, in, args);
  }
  void check_sums(const CheckContext& context, const Ticket& ticket, const CombineOutput& out,
                  const CombineOut& sums) override {
    steps_->check_sums(context, ticket, out, sums);
  }
  std::uint32_t num_rows() const override { return steps_->num_rows(); }
  std::optional<HandleFacts> read_handle(const CheckContext& context, const std::byte* handle,
                                         Operation operation) override {
    return steps_->read_handle(context, handle, operation);
  }
  void require_handles(const CheckContext& context) override { steps_->require_handles(context); }
  const std::byte* arrival_slots() override { return steps_->arrival_slots(); }

  void send(const Ticket& ticket, const DispatchArgs& args) override {
    if (damage_.before_send) damage_.before_send(ticket, args);
    counting(Operation::dispatch, ticket, [&] { steps_->send(ticket, args); });
    if (damage_.after_send) damage_.after_send(ticket, args);
  }
  void receive(const Ticket& ticket, const RowsOut& rows) override {
    RowsOut told = rows;
    if (damage_.rows) damage_.rows(told);
    steps_->receive(ticket, told);
    if (damage_.after_receive) damage_.after_receive(rows);
  }
  std::int64_t await_counts(const Ticket& ticket) override { return steps_->await_counts(ticket); }
  RowCounts row_counts(const Ticket& ticket) const override {
    RowCounts counts = steps_->row_counts(ticket);
    if (damage_.row_counts) damage_.row_counts(counts, ticket);
    return counts;
  }
  void send_back(const Ticket& ticket, const CombineArgs& args) override {
    if (damage_.before_send_back) damage_.before_send_back(ticket, args);
    counting(Operation::combine, ticket, [&] { steps_->send_back(ticket, args); });
    if (damage_.after_send_back) damage_.after_send_back(ticket, args);
  }
  void reduce(const Ticket& ticket, const CombineArgs& sent, const CombineOut& sums) override {
    CombineArgs told = sent;
    if (damage_.sums) damage_.sums(told);
    steps_->reduce(ticket, told, sums);
    if (damage_.after_reduce) damage_.after_reduce(ticket, sent, sums);
  }
  void poll() override { steps_->poll(); }
  void set_mask(const RankMask& mask) override { steps_->set_mask(mask); }
  void require_can_release() const override {
    if (damage_.cannot_release) throw Error(ErrorKind::unsupported, "release is not there");
    steps_->require_can_release();
  }
  void finish_calls() override { steps_->finish_calls(); }
  void give_back(const RankMask& mask, std::size_t bytes) override { steps_->give_back(mask, bytes); }
  void take_again(const RankMask& mask, std::chrono::milliseconds deadline) override {
    steps_->take_again(mask, deadline);
  }
  void bring_words_back() override { steps_->bring_words_back(); }
  void hold_memory() override { steps_->hold_memory(); }
  std::shared_ptr<ExchangeMemory> memory() const override { return steps_->memory(); }
  void leave_memory(bool keeps) override { steps_->leave_memory(keeps && !damage_.keeps_no_words); }
  std::size_t given_back() const override { return steps_->given_back() + damage_.given_back; }
  Stats stats() const override {
    Stats stats = steps_->stats();
    for (std::size_t peer = 0; peer < uncounted_.size(); ++peer) stats.bytes_sent[peer] -= uncounted_[peer];
    if (damage_.stats) damage_.stats(stats);
    return stats;
  }
  void tell_aborted(int missing) override { steps_->tell_aborted(missing); }
  void tell_left(const CallOrder& order) override { steps_->tell_left(order); }

 private:
  void counting(Operation operation, const Ticket& ticket, const std::function<void()>& step) {
    const std::vector<std::uint64_t> before = steps_->stats().bytes_sent;
    step();
    if (!damage_.uncounted || !damage_.uncounted(operation, ticket)) return;
    const std::vector<std::uint64_t> after = steps_->stats().bytes_sent;
    uncounted_.resize(after.size());
    for (std::size_t peer = 0; peer < after.size(); ++peer) uncounted_[peer] += after[peer] - before[peer];
  }

  std::unique_ptr<ExchangeSteps> steps_;
  const Damage& damage_;
  std::vector<std::uint64_t> uncounted_;
};

class WrongWorld final : public World {
 public:
  // `damage` outlives the world.
  WrongWorld(std::unique_ptr<World> world, const Damage& damage) : world_(std::move(world)), damage_(damage) {}

  WorldKind kind() const override { return world_->kind(); }
  WorldCapabilities capabilities() const override {
    WorldCapabilities can = world_->capabilities();
    if (damage_.capabilities) damage_.capabilities(can);
    return can;
  }
  const char* backend() const override { return world_->backend(); }
  int rank() const override { return world_->rank(); }
  int size() const override { return world_->size(); }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all, const RankMask& mask,
                  std::chrono::milliseconds deadline) override {
    world_->all_gather(mine, all, mask, deadline);
  }
  void tell_aborted(const AbortNotice& notice) override { world_->tell_aborted(notice); }
  std::string abort_reason(int rank) override { return world_->abort_reason(rank); }
  std::unique_ptr<ExchangeSteps> make_steps(const Shape& shape, const ExchangeOptions& options,
                                            const HeapMap& map) override {
    ExchangeOptions made = options;
    if (damage_.options) damage_.options(made);
    return std::make_unique<WrongSteps>(world_->make_steps(shape, made, map), damage_);
  }
  std::unique_ptr<ExchangeSteps> make_steps_in(const std::shared_ptr<ExchangeMemory>& memory, const Shape& shape,
                                               const ExchangeOptions& options, const HeapMap& map) override {
    return std::make_unique<WrongSteps>(world_->make_steps_in(memory, shape, options, map), damage_);
  }

 private:
  std::unique_ptr<World> world_;
  const Damage& damage_;
};

}  // namespace ferry::test
