// An ops object must say how often a group found something: a count that returns nothing is refused.
// expected-error: static assertion failed
// expected-error: ops.count_once
#include "ferry/detail/protocol/contracts/row_ops.h"

#ifdef FERRY_BREAK
using Counted = void;
#else
using Counted = int;
#endif

struct Drifted {
  Counted count_once(const ferry::SerialGroup&, int) const { return Counted(); }
};
static_assert(ferry::SendOps<Drifted, ferry::SerialGroup>);

int main() {}
