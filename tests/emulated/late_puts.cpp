#include "emulated/late_puts.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>

namespace ferry::test {
namespace {

std::mutex nets_guard;
std::map<const std::byte*, std::shared_ptr<LateNet>>& nets() {
  static std::map<const std::byte*, std::shared_ptr<LateNet>> all;
  return all;
}

template <class T>
bool has_arrived(const std::shared_ptr<T>& put) {
  return put->is_done();
}

Lag lag_of_all;
int puts_held_up = 0;

bool is_held_up(int& steps) {
  if (steps <= 0) return false;
  --steps;
  return true;
}

}  // namespace

// The bytes arrive in two parts, so that a signal that does not wait for them shows.
bool LatePut::step() {
  if (is_done_) return true;
  if (!std::all_of(before.begin(), before.end(), has_arrived<LatePut>)) return false;
  before.clear();
  if (is_held_up(steps_before_read)) return false;
  if (from != nullptr) {
    kept.assign(from, from + bytes);
    from = nullptr;
    return false;
  }
  if (is_held_up(steps_before_arrival)) return false;
  if (copied_ < bytes) {
    const std::size_t part = copied_ == 0 ? (bytes + 1) / 2 : bytes - copied_;
    std::memcpy(to + copied_, kept.data() + copied_, part);
    copied_ += part;
    return false;
  }
  if (signal_before != nullptr && !signal_before->is_done()) return false;
  signal_before.reset();
  is_done_ = true;
  emulated::ThreadView* const running =
      std::exchange(emulated::current, nullptr);  // no thread's store: none pauses here
  if (word != nullptr) store_release(*word, value);
  emulated::current = running;
  return true;
}

LateNet& LateNet::of(const std::byte* own) {
  const std::lock_guard lock(nets_guard);
  return *nets().at(own);
}
void LateNet::add(const std::byte* own, std::shared_ptr<LateNet> net) {
  const std::lock_guard lock(nets_guard);
  nets()[own] = std::move(net);
}
void LateNet::remove(const std::byte* own) {
  const std::lock_guard lock(nets_guard);
  nets().erase(own);
}

void LateNet::forget_arrived() { std::erase_if(under_way_, has_arrived<LatePut>); }

void LateNet::send(std::shared_ptr<LatePut> put) {
  if (const auto fenced = fenced_.find(emulated::current); fenced != fenced_.end()) put->before = fenced->second;
  if (put->word != nullptr) {
    std::shared_ptr<LatePut>& newest = newest_of_word_[put->word];
    put->signal_before = newest;
    newest = put;
  }
  forget_arrived();
  under_way_.push_back(put);
  emulated::add_late(std::move(put));
}

void LateNet::hold_up(const Lag& lag) {
  lag_of_all = lag;
  puts_held_up = 0;
}

void LateNet::send_to(std::size_t offset, std::shared_ptr<LatePut> put) {
  if (offset >= lag_of_all.begin && offset < lag_of_all.end) {
    constexpr int kStride = 7919;  // a prime
    const int steps = ++puts_held_up * kStride % lag_of_all.most_steps;
    (puts_held_up % 2 == 0 ? put->steps_before_read : put->steps_before_arrival) = steps;
  }
  send(std::move(put));
}

void LateNet::fence() {
  forget_arrived();
  fenced_[emulated::current] = under_way_;
}

void LateNet::land() {
  while (!under_way_.empty()) {
    for (const std::shared_ptr<LatePut>& put : under_way_) put->step();
    forget_arrived();
  }
}

void LateNet::land_all() {
  const std::lock_guard lock(nets_guard);
  for (const auto& [own, net] : nets()) net->land();
}

void LateNet::quiet() {
  land();
  emulated::touch_shared_word(true);
}

void LatePuts::put_signal(int peer, std::size_t offset, const std::byte* source, std::size_t bytes, std::size_t word,
                          Epoch value) const {
  emulated::meet(~0u, "a put of a warp", 0);
  if (emulated::current->thread.x % 32 != 0) return;
  auto put = std::make_shared<LatePut>();
  put->to = net_.at(peer, offset);
  put->from = source;
  put->bytes = bytes;
  put->word = word == 0 ? nullptr : reinterpret_cast<SignalWord*>(net_.at(peer, word));
  put->value = value;
  net_.send_to(offset, std::move(put));
}

void LatePuts::signal(int peer, std::size_t word, Epoch value) const {
  auto put = std::make_shared<LatePut>();
  put->word = reinterpret_cast<SignalWord*>(net_.at(peer, word));
  put->value = value;
  net_.send_to(word, std::move(put));
}

void LatePuts::store32(int peer, std::size_t offset, std::uint32_t value) const {
  auto put = std::make_shared<LatePut>();
  put->to = net_.at(peer, offset);
  put->kept.resize(sizeof value);
  std::memcpy(put->kept.data(), &value, sizeof value);
  put->bytes = sizeof value;
  net_.send(std::move(put));
}

}  // namespace ferry::test
