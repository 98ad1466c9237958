// PyExchange: an exchange as Python holds it. Arrays go in and out by the names of the fields of C++.
#pragma once

#include <ferry/exchange.h>
#include <nanobind/nanobind.h>

#include <memory>
#include <optional>

#include "python/src/base/call_thread.h"
#include "python/src/base/guard.h"
#include "python/src/exchange/options.h"
#include "python/src/world/world.h"

namespace ferry::python {

class PyExchange {
 public:
  // Collective. `memory_of`: of the same world, in whose memory it lies; null: in its own.
  PyExchange(PyWorld& world, const Shape& shape, const PyOptions& options, const PyExchange* memory_of);
  // Local. In a child process of a fork the exchange is left where it is, as its threads are not there to end.
  ~PyExchange();
  PyExchange(const PyExchange&) = delete;
  PyExchange& operator=(const PyExchange&) = delete;

  // Throws Closed after close().
  Exchange& exchange() const;
  // What keeps the memory of the exchange alive behind views of it.
  const std::shared_ptr<Exchange>& shared() const { return exchange_; }
  // `fails`: because of an error. The others are told at once, as where an exception of C++ destroys an exchange.
  void close(bool fails);
  bool is_closed() const { return exchange_ == nullptr; }
  // Where its arrays lie.
  Device device() const { return device_; }
  // Whether a function of Python has ended the newest combine(). Its sums may be still to come: combine_wait, which
  // reads what the combine was given, may follow.
  bool has_hook_raised() const { return hook_raised_; }
  void set_hook_raised(bool raised) { hook_raised_ = raised; }

  // work(exchange), alone in the object and without the GIL. On GPUs it enqueues kernels; on CPUs it waits for other
  // ranks, and Ctrl-C ends its waits.
  template <class Work>
  void call(const Work& work) {
    if (device_.kind != Device::Kind::cuda) return call_on_host(work);
    const auto lock = guard_->enter();
    Exchange& open = exchange();
    call_enqueuing(*world_, [&] { work(open); });
  }
  // The same for work in which the host waits for other ranks on GPUs, too.
  template <class Work>
  void call_on_host(const Work& work) {
    const auto lock = guard_->enter();
    Exchange& open = exchange();
    call_waiting(
        *world_, [&] { work(open); }, [this] { stay_on(device_); });
  }
  // The same for work that waits for no other rank.
  template <class Work>
  auto call_local(const Work& work) {
    const auto lock = guard_->enter();
    Exchange& open = exchange();
    const nanobind::gil_scoped_release without_gil;
    return work(open);
  }

 private:
  std::shared_ptr<World> world_;
  std::shared_ptr<Exchange> exchange_;
  Device device_;
  // One for all exchanges that share a memory: a thread in one of them is in all.
  std::shared_ptr<Guard> guard_;
  bool hook_raised_ = false;
};

}  // namespace ferry::python
