// Messages of tokens that have a global scale each (ExchangeOptions::dynamic_scales), as cpu/rows/scaled_messages.h: 1
// / g lies behind the scales, at result_layout's place. They have kernels of their own, as every MessageMaker.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ferry/detail/formats/row_scale.h"
#include "ferry/detail/formats/source.h"
#include "ferry/detail/layout/result_layout.h"
#include "ferry/detail/protocol/messages.h"

namespace ferry::cuda {

// Where 1 / g lies in a message of so many bytes of payload and scales.
FERRY_HD constexpr std::size_t inverse_at(std::size_t payload_bytes, std::size_t scale_bytes) {
  return result_layout(payload_bytes, scale_bytes, true).row_scale;
}

// The exchange encodes with the scale of the token, for which the team reads the row first. It is in a cache then.
template <TokenFormat Fmt>
struct ScalingEncoder {
  Fmt format{};

  template <SendStep S>
  __device__ int make(const S& step, const DispatchArgs& in, int token, std::byte* message) const {
    const auto& g = step.group;
    const int hidden = step.plan.shape.hidden;
    const InputRow row{in.tokens + token * in.row_stride, in.dtype};
    const std::size_t payload_bytes = format.payload_bytes(hidden);
    const auto scales = static_cast<std::size_t>(scales_per_row(format, hidden) * format.scale_bytes());
    const float scale = row_scale_of_largest(largest_of_team(g, largest_of_thread(g, row, hidden), message));
    const int found = format.encode(g, row, hidden, scale, message, message + payload_bytes);
    if (g.thread() == 0)
      *reinterpret_cast<float*>(message + inverse_at(payload_bytes, scales)) = codec::divide_rounded(1.0f, scale);
    return found;
  }

 private:
  template <ThreadGroup G>
  __device__ static std::uint32_t largest_of_thread(const G& g, InputRow row, int hidden) {
    const int largest = codec::with_source(row, [&](const auto& source) {
      std::uint32_t most = 0;
      for (int column = g.thread() * 8; column < hidden; column += g.size() * 8) {
        std::uint32_t bits[8];
        source.expand(source.template fetch<8>(column, 8), bits);
        for (int i = 0; i < 8; ++i) most = codec::larger(most, bits[i] & codec::kMagnitudeMask);
      }
      return static_cast<int>(most);
    });
    return static_cast<std::uint32_t>(largest);
  }
  // `words`: the team's buffer, which the message fills next. It has whole lines, and so a word for each warp.
  template <ThreadGroup G>
  __device__ static std::uint32_t largest_of_team(const G& g, std::uint32_t mine, std::byte* words) {
    std::uint32_t largest = g.template max_over<G::kWidth>(mine);
    if (g.size() == G::kWidth) return largest;
    auto* const of_warp = reinterpret_cast<std::uint32_t*>(words);
    if (g.thread() % G::kWidth == 0) of_warp[g.thread() / G::kWidth] = largest;
    g.sync();
    for (int i = 0; i < g.size() / G::kWidth; ++i) largest = codec::larger(largest, of_warp[i]);
    g.sync();
    return largest;
  }
};

// The caller encoded, and says with what.
struct GivenScaledRows {
  template <SendStep S>
  __device__ int make(const S& step, const DispatchArgs& in, int token, std::byte* message) const {
    const auto scales = static_cast<std::size_t>(in.scales.count * in.scales.bytes);
    if (step.group.thread() == 0)
      *reinterpret_cast<float*>(message + inverse_at(static_cast<std::size_t>(in.row_bytes), scales)) =
          in.global_scales[token];
    return GivenRows{}.make(step, in, token, message);
  }
};

}  // namespace ferry::cuda
