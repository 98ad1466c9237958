// ProcessFabric: ranks that are processes of one host. Every rank maps the heaps of all others, so puts and signals are
// those of threads. A wait also ends when the process of the rank that it waits for has.
#pragma once

#include <chrono>
#include <memory>
#include <utility>

#include "cpu/cpu_fabric.h"
#include "cpu/host_fabric.h"
#include "net/bootstrap.h"

namespace ferry::cpu {

// As HostPacer. A wait that lasts asks now and then whether the process of that rank is still there: its connection
// ends with it, and before it with nothing that it left to be seen in its peers' memory.
class ProcessPacer {
 public:
  ProcessPacer(Clock::duration deadline, net::Bootstrap& bootstrap, int peer)
      : pacer_(deadline), bootstrap_(bootstrap), peer_(peer), next_look_(Clock::now() + kLookEvery) {}

  Pace pause() {
    const Pace pace = pacer_.pause();
    if (pace != Pace::look_for_abort || Clock::now() < next_look_) return pace;
    next_look_ = Clock::now() + kLookEvery;
    return bootstrap_.has_ended(peer_) ? Pace::expired : pace;
  }

 private:
  static constexpr std::chrono::milliseconds kLookEvery{20};
  HostPacer pacer_;
  net::Bootstrap& bootstrap_;
  int peer_;
  Clock::time_point next_look_;
};

class ProcessCalls : public HostCalls {
 public:
  // The connections stay until the last exchange is gone: a rank whose connection has ended sends nothing any more.
  ProcessCalls(std::shared_ptr<net::Bootstrap> bootstrap, Heaps heaps, std::size_t abort_words,
               const std::uint8_t* masked)
      : HostCalls(bootstrap->rank(), std::move(heaps), abort_words, masked), bootstrap_(std::move(bootstrap)) {}

  // In place of that of HostCalls.
  bool wait_at_least(const HostGroup&, std::size_t word, Epoch target, const WaitSite& site) {
    ProcessPacer pacer(waits().deadline(), *bootstrap_, site.peer);
    return waits().wait(*reinterpret_cast<const SignalWord*>(local(word)), target, site, pacer);
  }
  Absence absence_of(int missing) const {
    const Absence said = HostCalls::absence_of(missing);
    return said == Absence::late && missing != rank() && bootstrap_->has_ended(missing) ? Absence::ended : said;
  }

 private:
  std::shared_ptr<net::Bootstrap> bootstrap_;
};
using ProcessFabric = OneByOne<ProcessCalls>;
static_assert(CpuFabric<ProcessFabric>);

}  // namespace ferry::cpu
