// Results since the last table: the thread that measures adds them, and when Ctrl-C comes another one takes them.
#pragma once

#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace ferry::app {

template <class Result>
class Results {
 public:
  void add(Result result) {
    const std::lock_guard lock(guard_);
    all_.push_back(std::move(result));
  }
  std::vector<Result> take() {
    const std::lock_guard lock(guard_);
    return std::exchange(all_, {});
  }
  std::optional<Result> last() const {
    const std::lock_guard lock(guard_);
    return all_.empty() ? std::nullopt : std::optional(all_.back());
  }

 private:
  mutable std::mutex guard_;
  std::vector<Result> all_;
};

}  // namespace ferry::app
