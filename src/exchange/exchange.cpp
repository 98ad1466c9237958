// ferry::Exchange: forwards to the backend that the world makes; and the calls over all exchanges of a process.
#include "ferry/exchange.h"

#include <fmt/core.h>

#include "base/run_on_threads.h"
#include "exchange/exchange_backend.h"

namespace ferry {
namespace {

ExchangeBackend& alive(const std::unique_ptr<ExchangeBackend>& backend) {
  if (backend == nullptr)
    throw Error(ErrorKind::out_of_order, "this exchange was moved from; call the one that it was moved to");
  return *backend;
}

}  // namespace

const char* to_string(Reduction reduction) { return reduction == Reduction::exact ? "exact" : "by_rank"; }

Exchange::Exchange(World& world, const Shape& shape, const ExchangeOptions& options)
    : backend_(world.make_exchange(shape, options)) {}
Exchange::~Exchange() = default;
Exchange::Exchange(Exchange&&) noexcept = default;
Exchange& Exchange::operator=(Exchange&&) noexcept = default;

void Exchange::dispatch_async(const DispatchInput& in, const CallOptions& call) {
  alive(backend_).dispatch_async(in, call);
}
void Exchange::dispatch_wait(const DispatchOutput& out, const CallOptions& call) {
  alive(backend_).dispatch_wait(out, call);
}
void Exchange::dispatch(const DispatchInput& in, const DispatchOutput& out, const CallOptions& call) {
  alive(backend_).dispatch(in, out, call);
}
void Exchange::combine_async(const CombineInput& in, const CallOptions& call) {
  alive(backend_).combine_async(in, call);
}
void Exchange::combine_wait(const CombineOutput& out, const CallOptions& call) {
  alive(backend_).combine_wait(out, call);
}
void Exchange::combine(const CombineInput& in, const CombineOutput& out, const CallOptions& call) {
  alive(backend_).combine(in, out, call);
}
void Exchange::check() { alive(backend_).check(); }
void Exchange::add_to_mask(const RankMask& mask) { alive(backend_).add_to_mask(mask); }

const Shape& Exchange::shape() const { return alive(backend_).shape(); }
const ExchangeOptions& Exchange::options() const { return alive(backend_).options(); }
const RowLayout& Exchange::layout() const { return alive(backend_).layout(); }
int Exchange::rank() const { return alive(backend_).rank(); }
std::size_t Exchange::memory_bytes() const { return alive(backend_).memory_bytes(); }
Stats Exchange::stats() const { return alive(backend_).stats(); }

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
