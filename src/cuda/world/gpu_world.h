// GpuWorld: what worlds of GPUs have in common, whoever their ranks are: how an exchange is made.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>

#include "cuda/exchange/cuda_exchange.h"
#include "ferry/world.h"

namespace ferry::cuda {

// Throws Error(unsupported) where the device has no bulk copies, which carry the messages: it is older than Hopper.
void require_bulk_copies(int device);

// Everyone's bytes, in rank order.
using GatherBytes = std::function<void(std::span<const std::byte> mine, std::span<std::byte> all)>;

// How many ranks have this rank's device. Collective over all ranks: where two have the same and do not both say that
// they may, all throw Error(invalid_argument) that names them.
int ranks_of_device(int rank, int size, int device, bool may_share, const GatherBytes& gather);

class GpuWorld : public World {
 public:
  // `staged`: calls take host memory.
  GpuWorld(const DevicePlace& place, bool staged) : place_(place), staged_(staged) {}
  const char* backend() const override { return "cuda"; }
  std::unique_ptr<ExchangeBackend> make_exchange(const Shape& shape, const ExchangeOptions& options) override;

 protected:
  // Every rank's heap of `bytes`, zeroed, as this rank's device reaches it: zeroed before anyone else can see them
  // (I13), and held by all (I16). Collective.
  virtual DeviceHeaps make_heaps(std::size_t bytes, const ExchangeOptions& options) = 0;

  // The kernels that reach those heaps.
  virtual Launchers launchers() const { return peer_launchers(); }

  // Throws where this kind of world cannot have such an exchange. Where one rank's does, all throw.
  virtual void require_supported(const ExchangeOptions& options) const;

  // Throws where kernels that a caller gives do not reach this world's ranks. Part of require_supported.
  virtual void require_kernels(const Launchers& kernels) const;

  // Whether some ranks are reached by puts only, from send buffers.
  virtual bool has_remote_ranks() const { return false; }

  // Runs `work` on this rank and tells all ranks how it went. Collective: where it fails on one, every rank throws the
  // same error, that of the first such rank, and none waits for it.
  void together(const std::function<void()>& work, const RankMask& mask, std::chrono::milliseconds deadline);

  // Finds out how many ranks are on this rank's device, as ranks_of_device.
  void count_ranks_on_device(bool may_share, std::chrono::milliseconds deadline);

  int device() const { return place_.device; }

 private:
  DevicePlace place_;
  bool staged_;
};

}  // namespace ferry::cuda
