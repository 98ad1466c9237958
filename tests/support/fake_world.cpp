#include "support/fake_world.h"

#include <exception>
#include <mutex>
#include <thread>
#include <type_traits>

#include "cpu/calls/cpu_steps.h"
#include "exchange/sizes/sizes.h"
#include "support/direct_fabric.h"
#include "support/reordering_fabric.h"

namespace ferry::test {
namespace {

// A rank that blocks in set-up lets the others step meanwhile.
class Away {
 public:
  Away(Baton& baton, int rank) : baton_(baton), rank_(rank) { baton_.away(rank_); }
  ~Away() { baton_.back(rank_); }
  Away(const Away&) = delete;
  Away& operator=(const Away&) = delete;

 private:
  Baton& baton_;
  int rank_;
};

Reach reach_of(FakeKind kind) {
  switch (kind) {
    case FakeKind::direct:
    case FakeKind::stepped:
      return Reach::all;
    case FakeKind::reordering_nodes:
      return Reach::even_distance;
    case FakeKind::reordering:
    case FakeKind::stepped_late:
    case FakeKind::stepped_lagging:
      break;
  }
  return Reach::itself;
}

}  // namespace

const char* name_of(FakeKind kind) {
  switch (kind) {
    case FakeKind::direct:
      return "direct";
    case FakeKind::reordering:
      return "reordering";
    case FakeKind::reordering_nodes:
      return "reordering_nodes";
    case FakeKind::stepped:
      return "stepped";
    case FakeKind::stepped_late:
      return "stepped_late";
    case FakeKind::stepped_lagging:
      return "stepped_lagging";
  }
  return "unknown";
}

bool is_stepped(FakeKind kind) {
  return kind == FakeKind::stepped || kind == FakeKind::stepped_late || kind == FakeKind::stepped_lagging;
}

std::span<const FakeKind> all_fake_kinds() {
  static constexpr FakeKind kKinds[] = {FakeKind::direct,  FakeKind::reordering,   FakeKind::reordering_nodes,
                                        FakeKind::stepped, FakeKind::stepped_late, FakeKind::stepped_lagging};
  return kKinds;
}

FakeWorld::FakeWorld(FakeKind kind, std::uint64_t seed, std::unique_ptr<World> inner, std::shared_ptr<Baton> baton)
    : kind_(kind), seed_(seed), inner_(std::move(inner)), baton_(std::move(baton)) {}

void FakeWorld::all_gather(std::span<const std::byte> mine, std::span<std::byte> all, const RankMask& mask,
                           std::chrono::milliseconds deadline) {
  const Away away(*baton_, rank());
  inner_->all_gather(mine, all, mask, deadline);
}

// Every rank's `mine`, by its address: the barrier keeps it where it is until all have a copy.
template <class T>
std::vector<std::shared_ptr<T>> FakeWorld::share(const std::shared_ptr<T>& mine, const ExchangeOptions& options) {
  const std::shared_ptr<T>* address = &mine;
  std::vector<const std::shared_ptr<T>*> addresses(static_cast<std::size_t>(size()));
  all_gather(std::as_bytes(std::span(&address, 1)), std::as_writable_bytes(std::span(addresses)), options.mask,
             set_up_deadline(options));
  std::vector<std::shared_ptr<T>> all(addresses.size());
  for (std::size_t rank = 0; rank < addresses.size(); ++rank)
    if (addresses[rank] != nullptr) all[rank] = *addresses[rank];
  barrier(options.mask, set_up_deadline(options));
  return all;
}

template <class F, class MakeNet>
std::unique_ptr<ExchangeSteps> FakeWorld::make_on(const Shape& shape, const ExchangeOptions& options,
                                                  const HeapMap& map, const MakeNet& make_net) {
  using Net = typename F::Net;
  const auto mine = std::make_shared<cpu::Heap>(map.total());
  const cpu::Heaps heaps = options.skip_a2a ? cpu::Heaps{mine} : share(mine, options);
  std::shared_ptr<Net> net;
  if (options.skip_a2a) {
    net = make_net(heaps);
  } else {
    int first = 0;
    while (is_masked(options.mask, first)) ++first;
    const std::shared_ptr<Net> made = rank() == first ? make_net(heaps) : nullptr;
    net = share(made, options)[static_cast<std::size_t>(first)];
  }
  return cpu::make_cpu_steps<F>(rank(), shape, options, map,
                                [&](int of, std::size_t abort_words, const std::uint8_t* masked) {
                                  const FabricPlace place{of, heaps, abort_words, masked};
                                  if constexpr (std::is_constructible_v<F, std::shared_ptr<Net>, FabricPlace>)
                                    return std::make_unique<F>(net, place);
                                  else
                                    return std::make_unique<F>(net, place, stop_plan_);
                                });
}

bool FakeWorld::has_remote_ranks() const { return reach_of(kind_) != Reach::all; }

std::unique_ptr<ExchangeSteps> FakeWorld::make_steps(const Shape& shape, const ExchangeOptions& options,
                                                     const HeapMap& map) {
  const Reach reach = reach_of(kind_);
  if (is_stepped(kind_)) {
    if (options.workers != 1 || stops_)
      throw Error(ErrorKind::unsupported, "stepped ranks have one worker and do not stop");
    return make_on<SteppedFabric>(shape, options, map, [&](const cpu::Heaps& heaps) {
      const auto baton = options.skip_a2a ? std::make_shared<Baton>(seed_, 1) : baton_;
      return std::make_shared<SteppedNet>(baton, seed_, reach, heaps, kind_ == FakeKind::stepped_lagging);
    });
  }
  const auto no_net = [](const cpu::Heaps&) { return std::make_shared<DirectFabric::Net>(); };
  const auto late_net = [&](const cpu::Heaps& heaps) { return std::make_shared<ReorderingNet>(seed_, reach, heaps); };
  const auto may_fail = [this, &shape, &options, &map]<class Inner>(const auto& make_net, Inner*) {
    if (!stops_) return make_on<Inner>(shape, options, map, make_net);
    using Failing = FailingFabric<Inner>;
    return make_on<Failing>(shape, options, map, [&](const cpu::Heaps& heaps) {
      return std::make_shared<typename Failing::Net>(make_net(heaps), size());
    });
  };
  if (kind_ == FakeKind::direct) return may_fail(no_net, static_cast<DirectFabric*>(nullptr));
  return may_fail(late_net, static_cast<ReorderingFabric*>(nullptr));
}

std::vector<std::unique_ptr<World>> make_fake_worlds(FakeKind kind, int ranks, std::uint64_t seed) {
  const auto baton = std::make_shared<Baton>(seed, ranks);
  std::vector<std::unique_ptr<World>> worlds;
  for (std::unique_ptr<World>& inner : make_thread_worlds(ranks))
    worlds.push_back(std::make_unique<FakeWorld>(kind, seed, std::move(inner), baton));
  return worlds;
}

void run_fake_ranks(FakeKind kind, int ranks, std::uint64_t seed, const std::function<void(FakeWorld&)>& body) {
  const auto worlds = make_fake_worlds(kind, ranks, seed);
  std::mutex guard;
  std::exception_ptr first;
  std::vector<std::thread> threads;
  for (const std::unique_ptr<World>& world : worlds) {
    threads.emplace_back([&, rank = static_cast<FakeWorld*>(world.get())] {
      try {
        body(*rank);
      } catch (const RankStopped&) {
        return;
      } catch (...) {
        const std::lock_guard lock(guard);
        if (!first) first = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace ferry::test
