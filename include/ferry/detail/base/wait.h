// The only loop of Ferry that spins. Every wait has a deadline and watches for an abort. A pacer decides how the
// waiting thread passes its time: it pauses, yields, or hands over to a test's scheduler.
#pragma once

#include <cstdint>

#include "ferry/detail/base/order.h"
#include "ferry/formats/portable.h"

namespace ferry {

enum class Waited : std::uint8_t { arrived, expired, aborted };

// A pacer's answer after a pause.
enum class Pace : std::uint8_t { again, look_for_abort, expired };

// Waits until there(), the deadline, or until another rank gives up (I10). pacer.pause() returns a Pace, which says
// when to check aborted().
template <class There, class Aborted, class Pacer>
FERRY_HD Waited wait_until(const There& there, const Aborted& aborted, Pacer& pacer) {
  Waited given_up = Waited::arrived;  // not yet; then there() is asked once more
  while (!there()) {
    if (given_up != Waited::arrived) return given_up;
    const Pace pace = pacer.pause();
    if (pace == Pace::again) continue;
    if (aborted())
      given_up = Waited::aborted;
    else if (pace == Pace::expired)
      given_up = Waited::expired;
  }
  return Waited::arrived;
}

// One look at a word, which waits for nothing (I13). What the signaller wrote before its release is visible if it is
// there.
template <Scope S>
FERRY_HD bool has_reached(const Shared<Epoch, S>& word, Epoch target) {
  return load_acquire(word) >= target;
}

// Waits until word >= target (I13). What the signaller wrote before its release is visible after `arrived`.
template <Scope S, class Aborted, class Pacer>
FERRY_HD Waited wait_at_least(const Shared<Epoch, S>& word, Epoch target, const Aborted& aborted, Pacer& pacer) {
  return wait_until([&] { return has_reached(word, target); }, aborted, pacer);
}

}  // namespace ferry
