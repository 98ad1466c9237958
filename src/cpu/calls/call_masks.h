// CallMasks: which ranks take no part in the calls of a CPU rank's exchange (I11). A mask only grows.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "ferry/exchange.h"

namespace ferry::cpu {

class CallMasks {
 public:
  // `ranks` as the protocol counts them. With skip_a2a this rank is alone, and masks say nothing.
  CallMasks(const ExchangeOptions& options, int ranks)
      : at_start_(options.skip_a2a ? RankMask{} : options.mask),
        of_dispatch_(static_cast<std::size_t>(ranks)),
        of_call_(of_dispatch_),
        newest_(of_dispatch_) {
    add(at_start_);
    begin_dispatch();
  }
  CallMasks(const CallMasks&) = delete;
  CallMasks& operator=(const CallMasks&) = delete;

  // From the next call on.
  void add(const RankMask& mask) {
    for (std::size_t peer = 0; peer < newest_.size(); ++peer)
      if (is_masked(mask, static_cast<int>(peer))) newest_[peer] = 1;
  }
  // The mask of a round is the newest one at its dispatch, and that of a combine with a handle is the newest one.
  void begin_dispatch() {
    std::copy(newest_.begin(), newest_.end(), of_dispatch_.begin());
    begin_combine_with_handle();
  }
  void begin_combine_with_handle() { std::copy(newest_.begin(), newest_.end(), of_call_.begin()); }

  const std::vector<std::uint8_t>& newest() const { return newest_; }
  // These two stay where they are, as others keep their addresses.
  const std::vector<std::uint8_t>& of_dispatch() const { return of_dispatch_; }
  // Abort words of the ranks in this mask count for nothing.
  const std::vector<std::uint8_t>& of_call() const { return of_call_; }

  // From any thread: ranks that never share this exchange.
  bool is_masked_at_start(int peer) const { return is_masked(at_start_, peer); }
  bool is_masked_in_call(int peer) const { return of_call_[static_cast<std::size_t>(peer)] != 0; }

 private:
  const RankMask at_start_;
  std::vector<std::uint8_t> of_dispatch_;
  std::vector<std::uint8_t> of_call_;
  std::vector<std::uint8_t> newest_;
};

}  // namespace ferry::cpu
