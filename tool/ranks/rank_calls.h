// A rank's calls on its exchange, for a caller whose tensors are in host memory, as those of the experts are. CPU ranks
// take them as they are. GPU ranks have copies on the device: `give` copies in, `take` copies back what there is, and
// what lies between is the exchange alone, awaited.
#pragma once

#include "ferry/exchange.h"

namespace ferry::app {

class RankCalls {
 public:
  virtual ~RankCalls() = default;

  virtual void give(const DispatchInput& in, const DispatchOutput& out) = 0;
  virtual void dispatch(Exchange& exchange) = 0;
  virtual void take_rows() = 0;

  // `num_rows`: rows that are there, padding included.
  virtual void give(const CombineInput& in, const CombineOutput& out, std::int64_t num_rows) = 0;
  virtual void combine(Exchange& exchange) = 0;
  virtual void take_sums() = 0;

  // After the last round, on all ranks: throws what a call that was only enqueued found too late to throw it.
  virtual void finish(Exchange& exchange) = 0;
};

// Calls on an exchange that takes host memory.
class HostCalls final : public RankCalls {
 public:
  void give(const DispatchInput& in, const DispatchOutput& out) override {
    dispatch_in_ = in;
    dispatch_out_ = out;
  }
  void dispatch(Exchange& exchange) override { exchange.dispatch(dispatch_in_, dispatch_out_); }
  void take_rows() override {}
  void give(const CombineInput& in, const CombineOutput& out, std::int64_t) override {
    combine_in_ = in;
    combine_out_ = out;
  }
  void combine(Exchange& exchange) override { exchange.combine(combine_in_, combine_out_); }
  void take_sums() override {}
  void finish(Exchange&) override {}

 private:
  DispatchInput dispatch_in_;
  DispatchOutput dispatch_out_;
  CombineInput combine_in_;
  CombineOutput combine_out_;
};

}  // namespace ferry::app
