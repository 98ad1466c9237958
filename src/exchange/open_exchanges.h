// OpenExchanges: the exchanges of a rank's end of a world, which World::abort ends with it. From any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/abort_notice.h"
#include "exchange/exchange_steps.h"

namespace ferry {

class OpenExchanges {
 public:
  // False: this rank has aborted before; the first time counts.
  bool begin_abort(const AbortNotice& notice);
  // Ends all that are open, and each that is opened later.
  void abort_all();

  void add(ExchangeSteps& steps);
  void remove(const ExchangeSteps& steps);

  // The number of the newest exchange that this rank made or began to make.
  std::uint32_t newest() const { return newest_; }
  void set_newest(std::uint32_t number) { newest_ = number; }

 private:
  void end(ExchangeSteps& steps) const;

  std::mutex guard_;
  std::vector<ExchangeSteps*> open_;
  std::optional<AbortNotice> notice_;
  bool aborts_ = false;       // all that are open have been told
  std::uint32_t newest_ = 0;  // only the thread that makes exchanges uses it
};

// The exchange of these steps is open while this lives.
class OpenExchange {
 public:
  OpenExchange(std::shared_ptr<OpenExchanges> all, ExchangeSteps& steps) : all_(std::move(all)), steps_(steps) {
    all_->add(steps_);
  }
  ~OpenExchange() { all_->remove(steps_); }
  OpenExchange(const OpenExchange&) = delete;
  OpenExchange& operator=(const OpenExchange&) = delete;

 private:
  std::shared_ptr<OpenExchanges> all_;
  ExchangeSteps& steps_;
};

}  // namespace ferry
