// What makes a CPU rank's messages, and messages of tokens that have a global scale each
// (ExchangeOptions::dynamic_scales): 1 / g lies behind the scales, at result_layout's place.
#pragma once

#include <cstddef>
#include <cstring>

#include "ferry/detail/formats/row_scale.h"
#include "ferry/detail/protocol/messages.h"

namespace ferry::cpu {

inline void put_inverse(float inverse, std::byte* message, std::size_t at) {
  std::memcpy(message + at, &inverse, sizeof inverse);
}

// The exchange encodes with the scale of the token.
template <TokenFormat Fmt>
struct ScalingEncoder {
  Fmt format;
  std::size_t inverse_at = 0;  // in a message

  template <SendStep S>
  int make(const S& step, const DispatchArgs& in, int token, std::byte* message) const {
    const int hidden = step.plan.shape.hidden;
    const InputRow row{in.tokens + token * in.row_stride, in.dtype};
    const float scale = row_scale_of(row, hidden);
    put_inverse(1.0f / scale, message, inverse_at);
    return format.encode(step.group, row, hidden, scale, message, message + format.payload_bytes(hidden));
  }
};

// The caller encoded, and says with what.
struct GivenScaledRows {
  std::size_t inverse_at = 0;

  template <SendStep S>
  int make(const S& step, const DispatchArgs& in, int token, std::byte* message) const {
    put_inverse(in.global_scales[token], message, inverse_at);
    return GivenRows{}.make(step, in, token, message);
  }
};

// Calls use(maker) with what makes the messages of these tokens: they come encoded, or `format` encodes them.
// `inverse_at`: 0 where tokens have no scales of their own.
template <TokenFormat Fmt, class Use>
void with_maker_of(const DispatchArgs& in, const Fmt& format, std::size_t inverse_at, const Use& use) {
  if (in.is_encoded())
    inverse_at == 0 ? use(GivenRows{}) : use(GivenScaledRows{inverse_at});
  else
    inverse_at == 0 ? use(Encoder<Fmt>{format}) : use(ScalingEncoder<Fmt>{format, inverse_at});
}

}  // namespace ferry::cpu
