// An ops object whose copy has drifted from the concept is refused where it is declared, not replaced by another copy.
// expected-error: static assertion failed
// expected-error: ops.copy_to_rows
#include "ferry/detail/protocol/contracts/row_ops.h"

struct Drifted : ferry::PortableOps {
#ifdef FERRY_BREAK
  template <ferry::ThreadGroup G>
  void copy_to_rows(const G&, std::byte*, const std::uint32_t*, int, const std::byte*, std::size_t) const {}
#endif
};
static_assert(ferry::RowOps<Drifted, ferry::SerialGroup>);

int main() {}
