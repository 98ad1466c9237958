// A format of the library that does not say whether it takes the input scale is refused: a misspelt member would else
// make all ranks compare a number that the format does not use.
// expected-error: constraint
// expected-error: ListedFormat
#include "ferry/detail/formats/format_list.h"

struct Listed : ferry::Bf16 {
#ifdef FERRY_BREAK
  static constexpr bool takes_input_scales() { return false; }
  static constexpr bool takes_input_scale() = delete;
#endif
};
using List = ferry::FormatList<ferry::Bf16, Listed>;
static_assert(List::kCount == 2);

int main() {}
