// FakeFabric: what the fabrics of the tests share: a rank's place among the heaps of all, and its waits.
#pragma once

#include <stdexcept>
#include <utility>

#include "cpu/fabric/host_fabric.h"

namespace ferry::test {

// Which peers a fabric gives a pointer to, besides the rank itself.
enum class Reach {
  itself,         // every other rank is reached by puts
  even_distance,  // a logical node: ranks at an even distance by stores, the others by puts
  all,
};

struct FabricPlace {
  int rank = 0;
  cpu::Heaps heaps;
  std::size_t abort_words = 0;
  const std::uint8_t* masked = nullptr;
};

class FakeFabric : public SerialFabricDefaults {
 public:
  static constexpr bool kHasWire = true;  // of the fabrics that derive from it: what is sent goes over Net::wire

  FakeFabric(FabricPlace place, Reach reach)
      : place_(std::move(place)),
        reach_(reach),
        mine_(place_.heaps[static_cast<std::size_t>(place_.rank)].get()),
        waits_(place_.rank, size(), reinterpret_cast<const SignalWord*>(mine_->data() + place_.abort_words),
               place_.masked) {}

  int rank() const { return place_.rank; }
  int size() const { return static_cast<int>(place_.heaps.size()); }
  std::byte* local(std::size_t offset) const { return mine_->data() + offset; }
  std::byte* peer_pointer(int peer, std::size_t offset) const { return reaches(peer) ? at(peer, offset) : nullptr; }
  int find_culprit() const { return waits_.find_culprit(); }
  Absence absence_of(int missing) const { return waits_.absence_of(missing); }
  cpu::HostWaits& waits() { return waits_; }
  const cpu::HostWaits& waits() const { return waits_; }

 protected:
  bool reaches(int peer) const {
    return peer == place_.rank || reach_ == Reach::all ||
           (reach_ == Reach::even_distance && (peer - place_.rank) % 2 == 0);
  }
  std::byte* at(int peer, std::size_t offset) const {
    return place_.heaps[static_cast<std::size_t>(peer)]->data() + offset;
  }
  SignalWord* word_at(int peer, std::size_t offset) const { return reinterpret_cast<SignalWord*>(at(peer, offset)); }
  const SignalWord& own_word(std::size_t offset) const { return *reinterpret_cast<const SignalWord*>(local(offset)); }

  // A put to a rank without a pointer may be read at any later time, so its source must be symmetric memory: the heap
  // stays as long as any rank may read it, and the protocol knows when it may be written again.
  void require_lasting(const void* source, std::size_t bytes, int peer) const {
    const auto* from = static_cast<const std::byte*>(source);
    if (bytes == 0 || reaches(peer) || (from >= mine_->data() && from + bytes <= mine_->data() + mine_->bytes()))
      return;
    throw std::logic_error("a put to a rank without a pointer has a source outside the symmetric memory");
  }

 private:
  FabricPlace place_;
  Reach reach_;
  cpu::Heap* mine_;
  cpu::HostWaits waits_;
};

}  // namespace ferry::test
