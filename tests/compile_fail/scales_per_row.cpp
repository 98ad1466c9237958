// A format that says how many scales a row has, but with another signature, is refused: its scales would else be
// counted by its blocks, without a word.
// expected-error: scales_per_row(hidden) of a format takes an int and returns int
#include "ferry/token_format.h"

#ifdef FERRY_BREAK
using Count = std::int64_t;
#else
using Count = int;
#endif

struct OneScale {
  constexpr int block() const { return 0; }
  constexpr Count scales_per_row(int) const { return 1; }
};
static_assert(ferry::scales_per_row(OneScale{}, 64) == 1);

int main() {}
