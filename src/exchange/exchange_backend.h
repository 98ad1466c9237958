// What a backend offers behind ferry::Exchange. Exchange forwards; the contracts are in include/ferry/exchange.h.
#pragma once

#include "ferry/exchange.h"

namespace ferry {

class ExchangeBackend {
 public:
  virtual ~ExchangeBackend() = default;

  virtual void dispatch_async(const DispatchInput& in, const CallOptions& call) = 0;
  virtual void dispatch_wait(const DispatchOutput& out, const CallOptions& call) = 0;
  virtual void dispatch(const DispatchInput& in, const DispatchOutput& out, const CallOptions& call) = 0;
  virtual void combine_async(const CombineInput& in, const CallOptions& call) = 0;
  virtual void combine_wait(const CombineOutput& out, const CallOptions& call) = 0;
  virtual void combine(const CombineInput& in, const CombineOutput& out, const CallOptions& call) = 0;
  virtual void check() = 0;
  virtual void add_to_mask(const RankMask& mask) = 0;

  virtual const Shape& shape() const = 0;
  virtual const ExchangeOptions& options() const = 0;
  virtual const RowLayout& layout() const = 0;
  virtual int rank() const = 0;
  virtual std::size_t memory_bytes() const = 0;
  virtual Stats stats() const = 0;
};

}  // namespace ferry
