// A format must say how many non-finite blocks it met: encode returns them.
// expected-error: TokenFormat
// expected-error: f.encode
#include "ferry/token_format.h"

#ifdef FERRY_BREAK
using Encoded = void;
#else
using Encoded = int;
#endif

struct Raw {
  constexpr const char* name() const { return "raw"; }
  constexpr int block() const { return 0; }
  constexpr int scale_bytes() const { return 0; }
  constexpr ferry::ScaleLayout scale_layout() const { return ferry::ScaleLayout::none; }
  constexpr int alignment() const { return 1; }
  constexpr std::size_t payload_bytes(int hidden) const { return 2 * static_cast<std::size_t>(hidden); }
  template <ferry::ThreadGroup G>
  Encoded encode(const G&, ferry::InputRow, int, float, std::byte*, std::byte*) const {
    return Encoded();
  }
  template <ferry::ThreadGroup G>
  void decode(const G&, const std::byte*, const std::byte*, int, float, float*) const {}
};

int main() { return ferry::any_format<Raw>().block(); }
