// GpuRank: what a rank has in every world of GPUs, whoever the other ranks are: its device, and how an exchange is
// made. GpuWorld: a world whose ranks are GpuRanks.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "cuda/device/heap_memory.h"
#include "cuda/device/rank_device.h"
#include "cuda/world/gpu_capabilities.h"
#include "exchange/exchange_memory.h"
#include "exchange/exchange_steps.h"
#include "ferry/detail/cuda/launch/launch.h"
#include "ferry/exchange.h"
#include "ferry/world.h"

namespace ferry::cuda {

// Throws Error(unsupported) where the device is older than Hopper and so has no bulk copies, which carry the messages.
void require_bulk_copies(int device);

// Gathers the bytes of all ranks, in rank order.
using GatherBytes = std::function<void(std::span<const std::byte> mine, std::span<std::byte> all)>;

// How many ranks have this rank's device. Collective. If two ranks have the same device and one of them may not share
// it, all ranks throw Error(invalid_argument) that names both.
int ranks_of_device(int rank, int size, int device, bool may_share, const GatherBytes& gather);

class GpuRank {
 public:
  GpuRank(const GpuRank&) = delete;
  GpuRank& operator=(const GpuRank&) = delete;

  // World::make_steps of this rank's world. `compiled`: kernels of the program; null: the library's. `memory`: of
  // another exchange; null: new.
  std::unique_ptr<ExchangeSteps> make_gpu_steps(const Shape& shape, const ExchangeOptions& options, const HeapMap& map,
                                                const Launchers* compiled, const ExchangeMemory* memory);

 protected:
  // `world` is the rank's end of its world, which this is a part of. `staged`: calls take host tensors,
  // which pass through device memory.
  GpuRank(World& world, const RankDevice& device, bool staged) : world_(world), device_(device), staged_(staged) {}
  ~GpuRank() = default;

  // The heaps of all ranks, `bytes` each, at the addresses of this rank's device. Collective. A heap is zero before
  // another rank can see it (I13), and every rank keeps all heaps alive (I16).
  virtual GpuHeaps make_heaps(std::size_t bytes, const ExchangeOptions& options) = 0;

  // Whether heaps can be given back while their addresses stay. The same on all ranks.
  virtual bool can_release() const { return false; }

  // A heap of this rank that all of `devices` reach and that can be given back. Zeroed.
  std::shared_ptr<HeapMemory> make_own_heap(std::size_t bytes, const std::vector<int>& devices,
                                            std::shared_ptr<std::byte>& heap);

  // The kernels that reach those heaps.
  virtual Launchers launchers() const { return direct_launchers(); }

  // The name of the fabric that reaches all ranks of such worlds, also remote ones.
  virtual const char* fabric() const { return direct_launchers().fabric; }

  // Throws where this kind of world cannot have such an exchange. If one rank throws, all ranks throw.
  virtual void require_supported(const ExchangeOptions& options, const Launchers* compiled) const;

  // Runs `work` on every rank. Collective. If it fails on a rank, all ranks throw the error of the first such rank, and
  // none waits for it.
  void together(const std::function<void()>& work, const RankMask& mask, std::chrono::milliseconds deadline);

  // Finds out how many ranks are on this rank's device, as ranks_of_device.
  void count_ranks_on_device(bool may_share, std::chrono::milliseconds deadline);

  int device() const { return device_.index; }
  bool is_staged() const { return staged_; }

 private:
  // Throws where the program's kernels, which are over the fabric `given`, do not reach all ranks that the exchange
  // sends to.
  void require_kernels(const ExchangeOptions& options, const std::string& given) const;
  GpuHeaps make_lone_heap(std::size_t bytes);
  Launchers kernels_for(const ExchangeOptions& options, const Launchers* compiled) const;

  World& world_;
  RankDevice device_;
  bool staged_;
};

// `Base` is World, or a world of processes.
template <class Base>
class GpuWorld : public Base, public GpuRank {
 public:
  template <class... OfBase>
  GpuWorld(const RankDevice& device, bool staged, OfBase&&... of_base)
      : Base(std::forward<OfBase>(of_base)...), GpuRank(static_cast<World&>(*this), device, staged) {}

  WorldCapabilities capabilities() const override {
    return gpu_capabilities(
        {.staged = is_staged(), .remote_ranks = this->has_remote_ranks(), .release = can_release()});
  }
  const char* backend() const override { return "cuda"; }
  std::unique_ptr<ExchangeSteps> make_steps(const Shape& shape, const ExchangeOptions& options,
                                            const HeapMap& map) override {
    return make_gpu_steps(shape, options, map, nullptr, nullptr);
  }
  std::unique_ptr<ExchangeSteps> make_steps_in(const std::shared_ptr<ExchangeMemory>& memory, const Shape& shape,
                                               const ExchangeOptions& options, const HeapMap& map) override {
    return make_gpu_steps(shape, options, map, nullptr, memory.get());
  }
  std::unique_ptr<ExchangeSteps> make_compiled_steps(const Shape& shape, const ExchangeOptions& options,
                                                     const HeapMap& map, const Launchers& kernels) override {
    return make_gpu_steps(shape, options, map, &kernels, nullptr);
  }
};

}  // namespace ferry::cuda
