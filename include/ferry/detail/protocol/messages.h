// MessageMaker: what a message is made of. An Encoder encodes the caller's row in a format; GivenRows copies a row that
// the caller encoded. A message is the payload of the row and then its scales, side by side. Each backend has makers of
// tokens with a scale each besides: cpu/rows/scaled_messages.h, where CPU ranks choose one of the four, and
// cuda/team/scaled_messages.cuh. On GPUs each maker has a kernel of its own, and the host chooses the kernel.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

#include "ferry/detail/base/copy.h"
#include "ferry/detail/protocol/step.h"

namespace ferry {

// make() writes the message of one token. All threads of the group call it. It returns what the calling thread found of
// non-finite blocks (rows, without scales): the sum over the threads is what the statistics count.
template <class M, class S>
concept MessageMaker = SendStep<S> &&
    requires(const M& maker, const S& step, const DispatchArgs& in, std::byte* message) {
  { maker.make(step, in, int{}, message) } -> std::same_as<int>;
};

template <TokenFormat Fmt>
struct Encoder {
  Fmt format{};

  template <SendStep S>
  FERRY_HD int make(const S& step, const DispatchArgs& in, int token, std::byte* message) const {
    const int hidden = step.plan.shape.hidden;
    const InputRow row{in.tokens + token * in.row_stride, in.dtype};
    const int found = format.encode(step.group, row, hidden, step.fabric.hooks().input_scale(in), message,
                                    message + format.payload_bytes(hidden));
    return format.block() == 0 ? step.ops.count_once(step.group, found) : found;
  }
};

struct GivenRows {
  template <SendStep S>
  FERRY_HD int make(const S& step, const DispatchArgs& in, int token, std::byte* message) const {
    const auto payload_bytes = static_cast<std::size_t>(in.row_bytes);
    copy_bytes(step.group, message, in.tokens + token * in.row_stride, payload_bytes);
    copy_scales(step.group, in.scales, token, message + payload_bytes);
    return 0;
  }

 private:
  template <ThreadGroup G>
  FERRY_HD static void copy_scales(const G& g, const GivenScales& scales, int token, std::byte* to) {
    const std::byte* from = scales.data + token * scales.token_stride;
    if (scales.bytes == sizeof(std::uint32_t)) {
      for (int i = g.thread(); i < scales.count; i += g.size())
        reinterpret_cast<std::uint32_t*>(to)[i] =
            *reinterpret_cast<const std::uint32_t*>(from + i * scales.scale_stride);
      return;
    }
    for (int i = g.thread(); i < scales.count; i += g.size())
      for (int byte = 0; byte < scales.bytes; ++byte)
        to[i * scales.bytes + byte] = from[i * scales.scale_stride + byte];
  }
};

}  // namespace ferry
