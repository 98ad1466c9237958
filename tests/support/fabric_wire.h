// Wire: puts and signals under way between the ranks of a test, delivered in an order drawn by seed. It does all that
// the fabric contract (ferry/detail/protocol/contracts/fabric.h) lets a wire do and nothing more:
//   - a put's source is read when it is delivered (C1), but for a put to a rank that has a pointer (C5);
//   - signal_after_puts waits for the earlier puts of its thread to that peer (C2), and for no others;
//   - put_then_signal waits for its own put only (C3); signal_without_order for none (C4);
//   - signals to one word, and the puts bound to them, keep the order of the calls (C7).
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "conformance/oracle/routing_patterns.h"
#include "ferry/detail/base/order.h"

namespace ferry::test {

// Where an operation goes: whose call, to whom, and to which place of the peer's memory.
struct WireRoute {
  int from;
  int to;
  std::byte* at;
};

class Wire {
 public:
  explicit Wire(std::uint64_t seed) : random_(seed) {}

  // `read_now`: the source is read before the call returns; else it must stay as it is until the put is delivered.
  void put(const WireRoute& route, const std::byte* source, std::size_t bytes, bool read_now);
  void put_then_signal(const WireRoute& route, const std::byte* source, std::size_t bytes, bool read_now,
                       SignalWord* word, Epoch value);
  void signal_after_puts(int from, int to, SignalWord* word, Epoch value);
  void signal_without_order(int from, int to, SignalWord* word, Epoch value);

  enum class Delivered { one, none_ready, nothing_left };
  // Delivers one operation that may come next. Some operations are patient: with `hurry` false they are passed over a
  // few times, so that they come late even when nothing else is under way. Called by one thread at a time.
  Delivered deliver(bool hurry);

  // From now on `deliver` passes over what goes from one rank to another one; only `deliver_held_back` delivers it.
  void hold_back(int from, int to) { held_from_ = from, held_to_ = to; }
  Delivered deliver_held_back();

  // How many operations there were so far; -1 while some of them are under way.
  std::int64_t all_delivered();

 private:
  struct Operation {
    std::uint64_t id = 0;
    int from = 0;
    int to = 0;
    std::thread::id thread;
    std::byte* at = nullptr;
    const std::byte* source = nullptr;
    std::size_t bytes = 0;
    std::vector<std::byte> copied;   // where the source was read by the call
    SignalWord* word = nullptr;      // null: a put
    SignalWord* bound_to = nullptr;  // a put of put_then_signal: its signal's word
    Epoch value = 0;
    std::vector<std::uint64_t> after;  // operations that must be delivered before this one
    int patience = 0;
  };

  std::uint64_t add(Operation operation);
  Operation make_put(const WireRoute& route, const std::byte* source, std::size_t bytes, bool read_now);
  Operation make_signal(int from, int to, SignalWord* word, Epoch value);
  bool is_ready(const Operation& operation) const;
  bool is_held_back(const Operation& operation) const {
    return operation.from == held_from_ && operation.to == held_to_;
  }
  Delivered deliver_one_of(const std::vector<std::size_t>& ready, std::unique_lock<std::mutex>& lock);
  static void carry_out(const Operation& operation);

  std::mutex guard_;
  Random random_;
  int held_from_ = -1;
  int held_to_ = -1;
  std::uint64_t last_id_ = 0;
  std::vector<Operation> pending_;  // in the order of the calls
};

}  // namespace ferry::test
