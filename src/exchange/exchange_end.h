// ExchangeEnd: what ended an exchange on this rank. The first end counts. From any thread.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "ferry/error.h"

namespace ferry {

class ExchangeEnd {
 public:
  struct Ended {
    WaitRecord record;
    std::string reason;  // of a rank that aborted
  };

  // Where the reason of a rank that aborted is asked for. Before the first call.
  void set_reasons(std::function<std::string(int)> reason_of) { reason_of_ = std::move(reason_of); }

  // Null: the exchange goes on.
  std::shared_ptr<const Ended> get() const {
    const std::lock_guard lock(guard_);
    return ended_;
  }
  std::shared_ptr<const Ended> note(const WaitRecord& record);
  std::shared_ptr<const Ended> note(const WaitRecord& record, const std::string& reason);

  // Throws PeerMissing, or Aborted. `more` is added to the text.
  [[noreturn]] static void raise(const Ended& ended, const char* more = "");

 private:
  std::function<std::string(int)> reason_of_;
  mutable std::mutex guard_;
  std::shared_ptr<const Ended> ended_;
};

}  // namespace ferry
