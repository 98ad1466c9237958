// Ops that read a result otherwise than the steps ask are refused where they are declared.
// expected-error: static assertion failed
// expected-error: ops.result_row
#include "ferry/detail/protocol/contracts/row_ops.h"

struct Drifted : ferry::PortableOps {
#ifdef FERRY_BREAK
  template <ferry::ThreadGroup G>
  ferry::SumRow result_row(const G&, const std::byte* result, float weight) const {
    return {result, weight, false};
  }
#endif
};
static_assert(ferry::ResultOps<Drifted, ferry::SerialGroup>);

int main() {}
