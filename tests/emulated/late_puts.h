// LatePuts: RemotePuts of ranks of this process. A put reads its source, and arrives, at times that the machine
// chooses; only what the contract of RemotePuts promises comes in order: not the bytes of two puts to one place. A
// warp's call is a barrier of its lanes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "ferry/detail/base/order.h"
#include "ferry/detail/cuda/fabric/remote_fabric.cuh"
#include "support/emulated_gpu/device_calls.h"
#include "support/emulated_gpu/machine.h"

namespace ferry::test {

// Puts and signals to offsets from `begin` to `end` are held up: one reads its source late, the next arrives late, by
// up to so many steps of its own. It goes on all the same when nothing else can.
struct Lag {
  std::size_t begin = 0;
  std::size_t end = 0;
  int most_steps = 0;
};

// On its way: bytes, or a signal, or bytes and their signal. It waits for those that must arrive before it.
class LatePut final : public emulated::Late {
 public:
  std::byte* to = nullptr;
  const std::byte* from = nullptr;  // read late
  std::size_t bytes = 0;
  SignalWord* word = nullptr;
  Epoch value = 0;
  std::vector<std::byte> kept;  // what was read of `from`, or a word that is sent by value
  int steps_before_read = 0;
  int steps_before_arrival = 0;
  std::vector<std::shared_ptr<LatePut>> before;
  std::shared_ptr<LatePut> signal_before;  // to the same word: signals to one word keep their order

  bool step() override;
  bool is_done() const { return is_done_; }

 private:
  std::size_t copied_ = 0;
  bool is_done_ = false;
};

// A rank's way to the memory of the others, for one exchange.
class LateNet {
 public:
  explicit LateNet(std::vector<std::byte*> heaps) : heaps_(std::move(heaps)) {}
  // The net of the exchange that owns this memory.
  static LateNet& of(const std::byte* own);
  static void add(const std::byte* own, std::shared_ptr<LateNet> net);
  static void remove(const std::byte* own);

  std::byte* at(int peer, std::size_t offset) const { return heaps_[static_cast<std::size_t>(peer)] + offset; }
  void send(std::shared_ptr<LatePut> put);
  // For puts of all exchanges from now on; none: {}.
  static void hold_up(const Lag& lag);
  // As send, for a put to `offset` that may be held up.
  void send_to(std::size_t offset, std::shared_ptr<LatePut> put);
  void fence();
  void quiet();
  // Lands what is under way in all nets. On the machine's thread.
  static void land_all();
  // For hosts, while no kernel runs.
  bool has_landed() {
    forget_arrived();
    return under_way_.empty();
  }

 private:
  void forget_arrived();
  void land();

  std::vector<std::byte*> heaps_;
  std::vector<std::shared_ptr<LatePut>> under_way_;
  std::map<const SignalWord*, std::shared_ptr<LatePut>> newest_of_word_;
  std::map<const emulated::ThreadView*, std::vector<std::shared_ptr<LatePut>>> fenced_;  // by thread
};

class LatePuts {
 public:
  static constexpr const char* kName = "late";
  explicit LatePuts(const cuda::PeerLinks& links) : net_(LateNet::of(links.own)) {}

  void put(int peer, std::size_t offset, const std::byte* source, std::size_t bytes) const {
    put_signal(peer, offset, source, bytes, 0, 0);
  }
  void put_signal(int peer, std::size_t offset, const std::byte* source, std::size_t bytes, std::size_t word,
                  Epoch value) const;
  void signal(int peer, std::size_t word, Epoch value) const;
  void store32(int peer, std::size_t offset, std::uint32_t value) const;
  void fence() const { net_.fence(); }
  void quiet() const { net_.quiet(); }
  void wait_signal(std::size_t, Epoch) const {}

 private:
  LateNet& net_;
};
static_assert(cuda::RemotePuts<LatePuts>);

using LateFabric = cuda::RemoteFabric<LatePuts>;
static_assert(cuda::DeviceFabric<LateFabric>);

}  // namespace ferry::test
