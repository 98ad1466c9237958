// ferry::Exchange: forwards to its front; and the calls over all exchanges of a process.
#include "ferry/exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <initializer_list>
#include <vector>

#include "base/run_on_threads.h"
#include "exchange/calls/call_log.h"
#include "exchange/front.h"

namespace ferry {
namespace {

template <class Front>
Front& alive(const std::unique_ptr<Front>& front) {
  if (front == nullptr)
    throw Error(ErrorKind::out_of_order, "this exchange was moved from; call the one that it was moved to");
  return *front;
}

}  // namespace

const char* to_string(Reduction reduction) {
  return reduction == Reduction::by_rank ? "by_rank" : reduction == Reduction::exact ? "exact" : "either";
}

Exchange::Exchange(World& world, const Shape& shape, const ExchangeOptions& options)
    : Exchange(world, shape, options, nullptr) {}
Exchange::Exchange(World& world, const Shape& shape, const ExchangeOptions& options, const cuda::Launchers* kernels)
    : front_([&] {
        std::unique_ptr<Front> made;
        logged("making an exchange", world.rank(),
               [&] { made = std::make_unique<Front>(world, shape, options, kernels, nullptr); });
        return made;
      }()) {}
Exchange::Exchange(Exchange& memory_of, const Shape& shape, const ExchangeOptions& options)
    : front_([&] {
        const Front& other = alive(memory_of.front_);
        std::unique_ptr<Front> made;
        logged("making an exchange", other.rank(),
               [&] { made = std::make_unique<Front>(other.world(), shape, options, nullptr, &other); });
        return made;
      }()) {}
Exchange::~Exchange() = default;
Exchange::Exchange(Exchange&&) noexcept = default;
Exchange& Exchange::operator=(Exchange&&) noexcept = default;

void Exchange::dispatch_async(const DispatchInput& in, const CallOptions& call) {
  logged("dispatch_async", rank(), [&] { front_->dispatch_async(in, call); });
}
RowCounts Exchange::wait_for_counts(const CallOptions& call) {
  RowCounts counts;
  logged("wait_for_counts", rank(), [&] { counts = front_->wait_for_counts(call); });
  return counts;
}
void Exchange::dispatch_wait(const DispatchOutput& out, const CallOptions& call) {
  logged("dispatch_wait", rank(), [&] { front_->dispatch_wait(out, call); });
}
void Exchange::dispatch(const DispatchInput& in, const DispatchOutput& out, const CallOptions& call) {
  logged("dispatch", rank(), [&] { front_->dispatch(in, out, call); });
}
void Exchange::combine_async(const CombineInput& in, const CallOptions& call) {
  logged("combine_async", rank(), [&] { front_->combine_async(in, call); });
}
void Exchange::combine_wait(const CombineOutput& out, const CallOptions& call) {
  logged("combine_wait", rank(), [&] { front_->combine_wait(out, call); });
}
void Exchange::combine(const CombineInput& in, const CombineOutput& out, const CallOptions& call) {
  logged("combine", rank(), [&] { front_->combine(in, out, call); });
}
void Exchange::check() {
  logged("check", rank(), [&] { front_->check(); });
}
void Exchange::set_hooks(const cuda::HookBytes& hooks) { alive(front_).set_hooks(hooks); }
void Exchange::require_hooks() { alive(front_).require_hooks(); }
void Exchange::add_to_mask(const RankMask& mask) { alive(front_).add_to_mask(mask); }

void Exchange::release(const CallOptions& call) {
  logged("release", rank(), [&] { front_->release(call); });
}
void Exchange::restore(const CallOptions& call) {
  logged("restore", rank(), [&] { front_->restore(call); });
}
void Exchange::take_memory(const CallOptions& call) {
  logged("take_memory", rank(), [&] { front_->take_memory(call); });
}

const Shape& Exchange::shape() const { return alive(front_).shape(); }
const ExchangeOptions& Exchange::options() const { return alive(front_).options(); }
const RowLayout& Exchange::layout(int format) const { return alive(front_).layout(format); }
const AnyFormat& Exchange::format(int format) const {
  layout(format);  // throws
  const ExchangeOptions& made = options();
  return format == 0 ? made.format : made.more_formats[static_cast<std::size_t>(format) - 1].format;
}
ArrivalSlots Exchange::arrival_slots(int format) const { return alive(front_).arrival_slots(format); }
int Exchange::rank() const { return alive(front_).rank(); }
std::size_t Exchange::memory_bytes() const { return alive(front_).memory_bytes(); }
bool Exchange::takes_device_memory() const { return alive(front_).takes_device_memory(); }
Stats Exchange::stats() const { return alive(front_).stats(); }

namespace {

void require_same_length(const char* call, const char* spans, std::initializer_list<std::size_t> lengths) {
  if (std::all_of(lengths.begin(), lengths.end(), [&](std::size_t each) { return each == *lengths.begin(); })) return;
  throw Error(ErrorKind::invalid_argument,
              fmt::format("{}: {} must have the same length (got {})", call, spans, fmt::join(lengths, ", ")));
}

// Before any of them is called: each is there, was not moved from, and is there once.
void require_usable(const char* call, std::span<Exchange* const> exchanges) {
  for (std::size_t i = 0; i < exchanges.size(); ++i) {
    if (exchanges[i] == nullptr)
      throw Error(ErrorKind::invalid_argument, fmt::format("{}: exchanges[{}] is null", call, i));
    exchanges[i]->rank();  // throws
    const auto first = std::find(exchanges.begin(), exchanges.end(), exchanges[i]) - exchanges.begin();
    if (first != static_cast<std::ptrdiff_t>(i))
      throw Error(
          ErrorKind::invalid_argument,
          fmt::format("{}: exchanges[{}] and exchanges[{}] are the same; give each exchange once", call, first, i));
  }
}

// Calls body(i) for each exchange. Calls on GPUs only enqueue, so this thread makes them; no other thread captures a
// stream that it began to capture. Those where waits(i) wait for other ranks, so each has a thread, when all others
// have been called.
void for_each_exchange(std::span<Exchange* const> exchanges, const std::function<bool(std::size_t)>& waits,
                       const std::function<void(std::size_t)>& body) {
  std::exception_ptr first;
  std::vector<std::size_t> waiting;
  for (std::size_t i = 0; i < exchanges.size(); ++i) {
    if (waits(i)) {
      waiting.push_back(i);
      continue;
    }
    try {
      body(i);
    } catch (...) {
      if (!first) first = std::current_exception();
    }
  }
  try {
    run_on_threads(waiting.size(), [&](std::size_t i) { body(waiting[i]); });
  } catch (...) {
    if (!first) first = std::current_exception();
  }
  if (first) std::rethrow_exception(first);
}

}  // namespace

namespace detail {

void dispatch_each(std::span<Exchange* const> exchanges, std::span<const DispatchInput> in,
                   std::span<const DispatchOutput> out, std::span<const CallOptions> calls) {
  require_same_length("dispatch_all", "exchanges, in, out and calls",
                      {exchanges.size(), in.size(), out.size(), calls.size()});
  require_usable("dispatch_all", exchanges);
  const auto waits = [&](std::size_t i) {
    const bool has_too_many = in[i].tokens.rank != 0 && in[i].tokens.shape[0] > exchanges[i]->shape().max_tokens;
    return !exchanges[i]->takes_device_memory() || has_too_many;
  };
  for_each_exchange(exchanges, waits, [&](std::size_t i) { exchanges[i]->dispatch(in[i], out[i], calls[i]); });
}

void combine_each(std::span<Exchange* const> exchanges, std::span<const CombineInput> in,
                  std::span<const CombineOutput> out, std::span<const CallOptions> calls) {
  require_same_length("combine_all", "exchanges, in, out and calls",
                      {exchanges.size(), in.size(), out.size(), calls.size()});
  require_usable("combine_all", exchanges);
  const auto waits = [&](std::size_t i) { return !exchanges[i]->takes_device_memory(); };
  for_each_exchange(exchanges, waits, [&](std::size_t i) { exchanges[i]->combine(in[i], out[i], calls[i]); });
}

}  // namespace detail

void dispatch_all(std::span<Exchange* const> exchanges, std::span<const DispatchInput> in,
                  std::span<const DispatchOutput> out, const CallOptions& call) {
  require_same_length("dispatch_all", "exchanges, in and out", {exchanges.size(), in.size(), out.size()});
  detail::dispatch_each(exchanges, in, out, std::vector<CallOptions>(exchanges.size(), call));
}

void combine_all(std::span<Exchange* const> exchanges, std::span<const CombineInput> in,
                 std::span<const CombineOutput> out, const CallOptions& call) {
  require_same_length("combine_all", "exchanges, in and out", {exchanges.size(), in.size(), out.size()});
  detail::combine_each(exchanges, in, out, std::vector<CallOptions>(exchanges.size(), call));
}

}  // namespace ferry
