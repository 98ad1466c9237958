// A log that does not take what its lookup found is refused.
// expected-error: static assertion failed
// expected-error: log.keep
#include "cpu/steps/lookup/serial_lookup.h"

struct Log {
  template <class G>
#ifdef FERRY_BREAK
  void keep(const G&, const ferry::Plan&, ferry::TokenAt) const {
  }
#else
  void keep(const G&, const ferry::Plan&, ferry::TokenAt, const ferry::cpu::SerialLookup::Found&) const {
  }
#endif
};
static_assert(ferry::ArrivalLog<Log, ferry::cpu::SerialLookup, ferry::SerialGroup>);

int main() {}
