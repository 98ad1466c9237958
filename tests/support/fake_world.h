// FakeWorld: a rank's end of a world of threads whose exchanges run over one of the tests' fabrics. Set-up is the
// thread world's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "ferry/world.h"
#include "support/failing_fabric.h"
#include "support/stepped_fabric.h"

namespace ferry::test {

enum class FakeKind {
  direct,            // cpu::HostFabric: what the thread world itself uses
  reordering,        // every other rank is reached by late puts
  reordering_nodes,  // ranks at an even distance by stores, the others by late puts
  stepped,           // one rank at a time; stores and signals are there at once
  stepped_late,      // one rank at a time; every other rank is reached by late puts
  stepped_lagging,   // the same, and what one rank sends to another one comes only when all ranks wait
};
const char* name_of(FakeKind kind);
bool is_stepped(FakeKind kind);
std::span<const FakeKind> all_fake_kinds();

class FakeWorld final : public World {
 public:
  // `inner` is the rank's end of a thread world; `baton` is shared by all ranks.
  FakeWorld(FakeKind kind, std::uint64_t seed, std::unique_ptr<World> inner, std::shared_ptr<Baton> baton);

  WorldKind kind() const override { return WorldKind::other; }
  const char* backend() const override { return name_of(kind_); }
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all, const RankMask& mask,
                  std::chrono::milliseconds deadline) override;
  bool has_remote_ranks() const override;
  void tell_aborted(const AbortNotice& notice) override { inner_->tell_aborted(notice); }
  std::string abort_reason(int rank) override { return inner_->abort_reason(rank); }
  std::unique_ptr<ExchangeSteps> make_steps(const Shape& shape, const ExchangeOptions& options,
                                            const HeapMap& map) override;

  // For exchanges made from now on: this rank stops at the call of its fabric that the plan names (failing_fabric.h).
  // Not with stepped ranks. All ranks make the call.
  void may_stop() { stops_ = true; }
  StopPlan& stop_plan() { return *stop_plan_; }

 private:
  template <class F, class MakeNet>
  std::unique_ptr<ExchangeSteps> make_on(const Shape& shape, const ExchangeOptions& options, const HeapMap& map,
                                         const MakeNet& make_net);
  template <class T>
  std::vector<std::shared_ptr<T>> share(const std::shared_ptr<T>& mine, const ExchangeOptions& options);

  FakeKind kind_;
  std::uint64_t seed_;
  std::unique_ptr<World> inner_;
  std::shared_ptr<Baton> baton_;
  std::shared_ptr<StopPlan> stop_plan_ = std::make_shared<StopPlan>();
  bool stops_ = false;
};

// All ranks' worlds. Exchanges of stepped worlds have one worker.
std::vector<std::unique_ptr<World>> make_fake_worlds(FakeKind kind, int ranks, std::uint64_t seed);

// Runs `body` once per rank on a thread of its own and rethrows the first error; a rank that stopped is none.
void run_fake_ranks(FakeKind kind, int ranks, std::uint64_t seed, const std::function<void(FakeWorld&)>& body);

}  // namespace ferry::test
