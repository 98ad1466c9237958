// ExchangeMemory: the symmetric memory of an exchange, as its world reaches it. It lives until the last exchange that
// lies in it is gone.
#pragma once

#include <utility>

namespace ferry {

class ExchangeMemory {
 public:
  ExchangeMemory() = default;
  virtual ~ExchangeMemory() = default;
  ExchangeMemory(const ExchangeMemory&) = delete;
  ExchangeMemory& operator=(const ExchangeMemory&) = delete;
};

// Memory of one kind: a backend's.
template <class Reached>
class MemoryOf final : public ExchangeMemory {
 public:
  explicit MemoryOf(Reached reached) : reached_(std::move(reached)) {}
  // `memory` is of this kind.
  static const Reached& of(const ExchangeMemory& memory) { return dynamic_cast<const MemoryOf&>(memory).reached_; }

 private:
  const Reached reached_;
};

}  // namespace ferry
