// A fabric must say whether a wait ended with the signal or with the deadline: a wait that returns nothing is refused.
// expected-error: constraints not satisfied
// expected-error: f.wait_at_least
#include "ferry/detail/protocol/contracts/fabric.h"

#ifdef FERRY_BREAK
using Waited = void;
#else
using Waited = bool;
#endif

struct NoCalls : ferry::SerialFabricDefaults {
  int rank() const { return 0; }
  int size() const { return 1; }
  std::byte* local(std::size_t) const { return nullptr; }
  std::byte* peer_pointer(int, std::size_t) const { return nullptr; }
  template <class G>
  void put(const G&, int, std::size_t, const void*, std::size_t) {}
  template <class G>
  void put_then_signal(const G&, int, const ferry::SignalledPut&) {}
  template <class G>
  void signal_after_puts(const G&, int, std::size_t, ferry::Epoch) {}
  template <class G>
  void signal_without_order(const G&, int, std::size_t, ferry::Epoch) {}
  template <class G>
  Waited wait_at_least(const G&, std::size_t, ferry::Epoch, const ferry::WaitSite&) {
    return Waited();
  }
};

template <ferry::SerialFabric F>
struct Needs {};

int main() { [[maybe_unused]] const Needs<ferry::OneByOne<NoCalls>> needs; }
