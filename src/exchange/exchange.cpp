// ferry::Exchange: forwards to its front; and the calls over all exchanges of a process.
#include "ferry/exchange.h"

#include <fmt/core.h>

#include "base/run_on_threads.h"
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

const char* to_string(Reduction reduction) { return reduction == Reduction::exact ? "exact" : "by_rank"; }

Exchange::Exchange(World& world, const Shape& shape, const ExchangeOptions& options)
    : front_(std::make_unique<Front>(world, shape, options)) {}
Exchange::~Exchange() = default;
Exchange::Exchange(Exchange&&) noexcept = default;
Exchange& Exchange::operator=(Exchange&&) noexcept = default;

void Exchange::dispatch_async(const DispatchInput& in, const CallOptions& call) {
  alive(front_).dispatch_async(in, call);
}
void Exchange::dispatch_wait(const DispatchOutput& out, const CallOptions& call) {
  alive(front_).dispatch_wait(out, call);
}
void Exchange::dispatch(const DispatchInput& in, const DispatchOutput& out, const CallOptions& call) {
  alive(front_).dispatch(in, out, call);
}
void Exchange::combine_async(const CombineInput& in, const CallOptions& call) { alive(front_).combine_async(in, call); }
void Exchange::combine_wait(const CombineOutput& out, const CallOptions& call) {
  alive(front_).combine_wait(out, call);
}
void Exchange::combine(const CombineInput& in, const CombineOutput& out, const CallOptions& call) {
  alive(front_).combine(in, out, call);
}
void Exchange::check() { alive(front_).check(); }
void Exchange::add_to_mask(const RankMask& mask) { alive(front_).add_to_mask(mask); }

const Shape& Exchange::shape() const { return alive(front_).shape(); }
const ExchangeOptions& Exchange::options() const { return alive(front_).options(); }
const RowLayout& Exchange::layout() const { return alive(front_).layout(); }
int Exchange::rank() const { return alive(front_).rank(); }
std::size_t Exchange::memory_bytes() const { return alive(front_).memory_bytes(); }
Stats Exchange::stats() const { return alive(front_).stats(); }

namespace {

void require_same_length(const char* call, std::size_t exchanges, std::size_t in, std::size_t out) {
  if (exchanges == in && in == out) return;
  throw Error(
      ErrorKind::invalid_argument,
      fmt::format("{}: exchanges, in and out must have the same length (got {}, {} and {})", call, exchanges, in, out));
}

void require_given(const char* call, std::span<Exchange* const> exchanges) {
  for (std::size_t i = 0; i < exchanges.size(); ++i)
    if (exchanges[i] == nullptr)
      throw Error(ErrorKind::invalid_argument, fmt::format("{}: exchanges[{}] is null", call, i));
}

}  // namespace

void dispatch_all(std::span<Exchange* const> exchanges, std::span<const DispatchInput> in,
                  std::span<const DispatchOutput> out, const CallOptions& call) {
  require_same_length("dispatch_all", exchanges.size(), in.size(), out.size());
  require_given("dispatch_all", exchanges);
  run_on_threads(exchanges.size(), [&](std::size_t i) { exchanges[i]->dispatch(in[i], out[i], call); });
}

void combine_all(std::span<Exchange* const> exchanges, std::span<const CombineInput> in,
                 std::span<const CombineOutput> out, const CallOptions& call) {
  require_same_length("combine_all", exchanges.size(), in.size(), out.size());
  require_given("combine_all", exchanges);
  run_on_threads(exchanges.size(), [&](std::size_t i) { exchanges[i]->combine(in[i], out[i], call); });
}

}  // namespace ferry
