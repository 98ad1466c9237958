// A fabric for kernels must have every call that they make: one without complete_puts is refused, by that name.
// expected-error: constraints not satisfied
// expected-error: f.complete_puts(g)
#include "ferry/detail/cuda/fabric/device_fabric.h"
#include "ferry/detail/protocol/contracts/round.h"

using namespace ferry;
using cuda::PeerLinks;

struct Waits {
  explicit Waits(const PeerLinks&) {}
  template <class WordOf>
  bool are_there(const SerialGroup&, int, const WordOf&, Epoch) const {
    return true;
  }
  cuda::TaggedValue wait_for_tag(std::size_t, Epoch, std::size_t, const WaitSite&, bool) const { return {}; }
  template <class There, class Seen>
  bool wait_for_counts(const There&, const Seen&, Epoch) const {
    return true;
  }
  bool wait_for_block(const DeviceWord<Epoch>&, Epoch) const { return true; }
  bool wait_for_own_part(const Plan&, int, Epoch) const { return true; }
};

struct Reach {
  static constexpr bool kHasRemoteRanks = false;
  explicit Reach(const PeerLinks&) {}
  bool is_direct(int) const { return true; }
  std::byte* heap_of(int) const { return nullptr; }
  void signal(int, std::size_t, Epoch) const {}
  void signal_without_order(int, std::size_t, Epoch) const {}
  void see_puts_of(int, std::size_t, Epoch) const {}
};

template <class H>
struct Hooks : PointerHooks {
  using Given = H;
};

template <class H>
struct Loopback {
  using Group = SerialGroup;
  using WarpGroup = SerialGroup;
  using Hooks = ::Hooks<H>;
  using Reach = ::Reach;
  using Waits = ::Waits;
  template <class Other>
  using WithHooks = Loopback<Other>;
  static constexpr bool kHasRemoteRanks = false;
  static constexpr const char* kName = "loopback";

  Loopback(const PeerLinks& links, const Plan&, std::size_t) : links_(links) {}
  Hooks hooks() const { return {}; }
  const PeerLinks& links() const { return links_; }
  std::byte* local(std::size_t offset) const { return links_.own + offset; }
  std::byte* peer_pointer(int, std::size_t offset) const { return links_.own + offset; }
  void make_in_place() {}

  void use_buffers(std::byte*, const Group&) {}
  void store_messages() {}
  std::byte* staging(const Group&, std::byte* room) { return room; }
  void put_then_signal(const Group&, int, const SignalledPut&) {}
  void put_then_signal_each(const Group&, const Destinations&, const SignalledPut&) {}
  void finish_puts(const Group&) {}
  void fence_puts(const Group&, int) {}
#ifndef FERRY_BREAK
  void complete_puts(const Group&) {}
#endif
  void signal_after_puts(const Group&, int, std::size_t, Epoch) {}
  void signal_each_after_puts(const Group&, int, std::size_t, Epoch, const std::uint8_t*, int) {}
  void store(int, std::size_t, const RoutingEntry&) {}
  void store_word(int, std::size_t, std::uint32_t) {}

  const Waits& waits() const { return waits_; }
  bool wait_at_least(const Group&, std::size_t, Epoch, const WaitSite&) { return true; }
  template <class WordOf, class SiteOf>
  bool wait_for_each(const Group&, int, const WordOf&, Epoch, const SiteOf&, const std::uint8_t*) {
    return true;
  }
  bool await_entries(const Group&, const Plan&, Epoch, Epoch, const TokenAt&, int) { return true; }

  const PeerLinks& links_;
  Waits waits_{links_};
};

template <cuda::DeviceFabric F>
struct Needs {};

int main() { [[maybe_unused]] const Needs<Loopback<PointerHooks>> needs; }
