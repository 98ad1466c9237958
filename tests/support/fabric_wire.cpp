#include "support/fabric_wire.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace ferry::test {

void Wire::put(const WireRoute& route, const std::byte* source, std::size_t bytes, bool read_now) {
  if (bytes == 0 || source == route.at) return;
  const std::lock_guard lock(guard_);
  add(make_put(route, source, bytes, read_now));
}

void Wire::put_then_signal(const WireRoute& route, const std::byte* source, std::size_t bytes, bool read_now,
                           SignalWord* word, Epoch value) {
  const std::lock_guard lock(guard_);
  Operation signal = make_signal(route.from, route.to, word, value);
  if (bytes != 0) {
    Operation put = make_put(route, source, bytes, read_now);
    put.bound_to = word;
    put.after = signal.after;  // C7
    signal.after.push_back(add(std::move(put)));
  }
  add(std::move(signal));
}

void Wire::signal_after_puts(int from, int to, SignalWord* word, Epoch value) {
  const std::lock_guard lock(guard_);
  Operation signal = make_signal(from, to, word, value);
  for (const Operation& earlier : pending_)  // C2
    if (earlier.word == nullptr && earlier.from == from && earlier.to == to && earlier.thread == signal.thread)
      signal.after.push_back(earlier.id);
  add(std::move(signal));
}

void Wire::signal_without_order(int from, int to, SignalWord* word, Epoch value) {
  const std::lock_guard lock(guard_);
  add(make_signal(from, to, word, value));
}

std::uint64_t Wire::add(Operation operation) {
  operation.id = ++last_id_;
  operation.patience = random_.chance(0.5) ? 0 : random_.below(12);
  pending_.push_back(std::move(operation));
  return last_id_;
}

Wire::Operation Wire::make_put(const WireRoute& route, const std::byte* source, std::size_t bytes, bool read_now) {
  Operation put;
  put.from = route.from;
  put.to = route.to;
  put.thread = std::this_thread::get_id();
  put.at = route.at;
  put.bytes = bytes;
  if (read_now)
    put.copied.assign(source, source + bytes);
  else
    put.source = source;
  return put;
}

Wire::Operation Wire::make_signal(int from, int to, SignalWord* word, Epoch value) {
  Operation signal;
  signal.from = from;
  signal.to = to;
  signal.thread = std::this_thread::get_id();
  signal.word = word;
  signal.value = value;
  for (const Operation& earlier : pending_)  // C7
    if (earlier.from == from && (earlier.word == word || earlier.bound_to == word)) signal.after.push_back(earlier.id);
  return signal;
}

bool Wire::is_ready(const Operation& operation) const {
  return std::none_of(operation.after.begin(), operation.after.end(), [&](std::uint64_t id) {
    const auto at = std::lower_bound(pending_.begin(), pending_.end(), id,
                                     [](const Operation& other, std::uint64_t wanted) { return other.id < wanted; });
    return at != pending_.end() && at->id == id;
  });
}

Wire::Delivered Wire::deliver(bool hurry) {
  std::unique_lock lock(guard_);
  if (pending_.empty()) return Delivered::nothing_left;
  std::vector<std::size_t> ready;
  for (std::size_t i = 0; i < pending_.size(); ++i) {
    if (is_held_back(pending_[i]) || !is_ready(pending_[i])) continue;
    if (!hurry && pending_[i].patience-- > 0) continue;
    ready.push_back(i);
  }
  return deliver_one_of(ready, lock);
}

Wire::Delivered Wire::deliver_held_back() {
  std::unique_lock lock(guard_);
  std::vector<std::size_t> ready;
  for (std::size_t i = 0; i < pending_.size(); ++i)
    if (is_held_back(pending_[i]) && is_ready(pending_[i])) ready.push_back(i);
  return deliver_one_of(ready, lock);
}

Wire::Delivered Wire::deliver_one_of(const std::vector<std::size_t>& ready, std::unique_lock<std::mutex>& lock) {
  if (ready.empty()) return Delivered::none_ready;
  const std::size_t chosen = random_.chance(0.3)
                                 ? ready.back()
                                 : ready[static_cast<std::size_t>(random_.below(static_cast<int>(ready.size())))];
  const Operation operation = pending_[chosen];  // stays pending while it is carried out, so nothing overtakes it
  lock.unlock();
  carry_out(operation);
  lock.lock();
  pending_.erase(
      std::find_if(pending_.begin(), pending_.end(), [&](const Operation& o) { return o.id == operation.id; }));
  return Delivered::one;
}

std::int64_t Wire::all_delivered() {
  const std::lock_guard lock(guard_);
  return pending_.empty() ? static_cast<std::int64_t>(last_id_) : -1;
}

void Wire::carry_out(const Operation& operation) {
  if (operation.word != nullptr)
    store_release(*operation.word, operation.value);
  else
    std::memcpy(operation.at, operation.source == nullptr ? operation.copied.data() : operation.source,
                operation.bytes);
}

}  // namespace ferry::test
