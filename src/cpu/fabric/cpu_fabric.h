// CpuFabric: what the steps of a CPU rank ask of a fabric.
#pragma once

#include <concepts>

#include "cpu/fabric/host_waits.h"
#include "ferry/detail/protocol/fabric.h"

namespace ferry::cpu {

// A fabric for CPU ranks also has `waits()`: deadline, failure record, waiting times. `find_culprit` names the rank
// that a failure goes back to, and `absence_of` why it is missing; a fabric may know more than the abort words of one
// exchange say.
template <class F>
concept CpuFabric = SerialFabric<F> && requires(F& f, const F& c) {
  { f.waits() } -> std::same_as<HostWaits&>;
  { c.find_culprit() } -> std::same_as<int>;
  { c.absence_of(int{}) } -> std::same_as<Absence>;
};

}  // namespace ferry::cpu
