// A rank's calls on its exchange, for a caller whose tensors are in host memory. CPU ranks take them as they are. GPU
// ranks have copies on the device: `give` copies in, `take` copies back what there is, and what lies between is the
// exchange alone, awaited. Rows may stay where the exchange has them: arrived(), and the rows of a CombineInput.
#pragma once

#include "ferry/exchange.h"

namespace ferry::app {

class RankCalls {
 public:
  virtual ~RankCalls() = default;

  virtual void give(const DispatchInput& in, const DispatchOutput& out) = 0;
  virtual void dispatch(Exchange& exchange) = 0;
  // What a dispatch wrote, where it wrote it.
  virtual const DispatchOutput& arrived() const = 0;
  // The same, in the tensors of the host: all of it, or all but payload and scales.
  virtual void take_rows() = 0;
  virtual void take_routing() = 0;

  // Rows of the host in the memory that the exchange takes; `num_rows` of them are there, padding included.
  virtual ConstTensor carry_in(const ConstTensor& rows, std::int64_t num_rows) = 0;
  // `in` has rows and src_info in the memory that the exchange takes.
  virtual void give(const CombineInput& in, const CombineOutput& out) = 0;
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
  const DispatchOutput& arrived() const override { return dispatch_out_; }
  void take_rows() override {}
  void take_routing() override {}
  ConstTensor carry_in(const ConstTensor& rows, std::int64_t) override { return rows; }
  void give(const CombineInput& in, const CombineOutput& out) override {
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
