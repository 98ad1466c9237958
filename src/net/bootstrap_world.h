// BootstrapWorld: what every world of processes that meet by TCP has of its bootstrap.
#pragma once

#include <memory>
#include <utility>

#include "ferry/worlds/process_world.h"
#include "net/bootstrap.h"

namespace ferry::net {

class BootstrapWorld : public ProcessWorld {
 public:
  explicit BootstrapWorld(std::unique_ptr<Bootstrap> bootstrap) : bootstrap_(std::move(bootstrap)) {}

  int rank() const override { return bootstrap_->rank(); }
  int size() const override { return bootstrap_->size(); }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all, const RankMask& mask,
                  std::chrono::milliseconds deadline) override {
    bootstrap_->all_gather(mine, all, mask, deadline);
  }
  void send(std::span<const std::byte> data, int to, std::chrono::milliseconds deadline) override {
    bootstrap_->send(data, to, deadline);
  }
  void receive(std::span<std::byte> data, int from, std::chrono::milliseconds deadline) override {
    bootstrap_->receive(data, from, deadline);
  }
  void tell_aborted(const AbortNotice& notice) override { bootstrap_->tell_aborted(notice); }
  std::string abort_reason(int rank) override { return bootstrap_->abort_reason(rank); }

 protected:
  Bootstrap& bootstrap() const { return *bootstrap_; }

 private:
  std::unique_ptr<Bootstrap> bootstrap_;
};

}  // namespace ferry::net
