// LinkedWorld: a world of the library, and its job's own connections for what no exchange carries.
#pragma once

#include <memory>
#include <utility>

#include "exchange/exchange_steps.h"
#include "ferry/process_world.h"
#include "tool/ranks/byte_links.h"

namespace ferry::app {

// Every rank is stored to, unless a derived class knows better.
template <class LibraryWorld>
class LinkedWorld : public ProcessWorld {
 public:
  LinkedWorld(std::unique_ptr<LibraryWorld> world, std::shared_ptr<ByteLinks> links)
      : world_(std::move(world)), links_(std::move(links)) {}

  const char* backend() const override { return world_->backend(); }
  int rank() const override { return world_->rank(); }
  int size() const override { return world_->size(); }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all, const RankMask& mask,
                  std::chrono::milliseconds deadline) override {
    world_->all_gather(mine, all, mask, deadline);
  }
  bool has_remote_ranks() const override { return world_->has_remote_ranks(); }
  std::unique_ptr<ExchangeSteps> make_steps(const Shape& shape, const ExchangeOptions& options,
                                            const HeapMap& map) override {
    return world_->make_steps(shape, options, map);
  }
  bool reaches_directly(int) const override { return true; }
  void send(std::span<const std::byte> data, int to, std::chrono::milliseconds deadline) override {
    links_->send(data, to, deadline);
  }
  void receive(std::span<std::byte> data, int from, std::chrono::milliseconds deadline) override {
    links_->receive(data, from, deadline);
  }

 protected:
  const LibraryWorld& world() const { return *world_; }

 private:
  std::unique_ptr<LibraryWorld> world_;
  std::shared_ptr<ByteLinks> links_;
};

}  // namespace ferry::app
