// The tokens of a rank in a round, as its dispatch is given them: in bf16, or encoded already.
#pragma once

#include "tool/io/memory.h"
#include "tool/layer/base/layer_plan.h"

namespace ferry::app {

class GivenTokens {
 public:
  GivenTokens(const RowLayout& layout, const Shape& shape, const LayerOptions& options);

  // Rounds them to bf16 first, so that both ways encode the same values. `x`: float32 [count, hidden].
  void take(const float* x, std::int64_t count);
  // Tokens and, where they are encoded, their scales.
  void give(DispatchInput& in) const;
  // Blocks with a NaN or an infinity, among the tokens encoded here in all rounds. Else the exchange counts them.
  std::uint64_t non_finite_blocks() const { return non_finite_blocks_; }

  // Host memory of `tokens` tokens.
  static std::uint64_t bytes(const RowLayout& layout, bool encoded, std::uint64_t tokens);

 private:
  void encode(std::int64_t token);

  const LayerOptions& options_;
  RowLayout layout_;
  std::int64_t count_ = 0;
  Pages tokens_;       // bf16 [max_tokens, hidden]
  Pages payload_;      // [max_tokens, payload_row_bytes]
  Pages scales_;       // [max_tokens, scales_per_row], in column order
  Pages one_payload_;  // of a row, aligned as encode wants it
  Pages one_scales_;
  std::uint64_t non_finite_blocks_ = 0;
};

}  // namespace ferry::app
