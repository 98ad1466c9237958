// A lookup whose local_rows has drifted from the concept is refused: it would else take row starts of another meaning.
// expected-error: static assertion failed
// expected-error: lookup.local_rows
#include "cpu/steps/lookup/serial_lookup.h"

struct Drifted : ferry::cpu::SerialLookup {
#ifdef FERRY_BREAK
  struct AbsoluteStarts {};
  template <ferry::ThreadGroup G>
  Found local_rows(const G&, const ferry::Plan&, const AbsoluteStarts&, ferry::TokenAt, const ferry::RoutingEntry*,
                   ferry::LocalRows&) const {
    return {};
  }
#endif
};
static_assert(ferry::TokenLookup<Drifted, ferry::SerialGroup>);

int main() {}
