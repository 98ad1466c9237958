// CpuFabric: what the steps of a CPU rank ask of a fabric.
#pragma once

#include <concepts>
#include <cstddef>

#include "cpu/fabric/host_waits.h"
#include "ferry/detail/protocol/contracts/fabric.h"

namespace ferry::cpu {

// A fabric for CPU ranks also has `waits()`: deadline, failure record, waiting times. `find_culprit` names the rank
// that a failure goes back to, and `absence_of` why it is missing; a fabric may know more than the abort words of one
// exchange say.
template <class F>
concept CpuFabric = SerialFabric<F> && requires(F& f, const F& c) {
  { f.waits() } -> std::same_as<HostWaits&>;
  { c.find_culprit() } -> std::same_as<int>;
  { c.absence_of(int{}) } -> std::same_as<Absence>;
  { F::kGivesBack } -> std::convertible_to<bool>;
} &&(!F::kGivesBack || requires(F & f, std::size_t begin, std::size_t bytes) {
  { f.give_back(begin, bytes) } -> std::same_as<std::size_t>;  // of this rank's own memory, as Heap::give_back
});

}  // namespace ferry::cpu
