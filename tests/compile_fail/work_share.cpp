// A work share that forgets the group is refused: its threads would not agree on the next place.
// expected-error: static assertion failed
// expected-error: share.next
#include "ferry/detail/protocol/contracts/work_share.h"

struct Share {
  int index = 0;
#ifdef FERRY_BREAK
  int next(int place) { return place + 1; }
#else
  int next(const ferry::SerialGroup&, int place) { return place + 1; }
#endif
};
static_assert(ferry::WorkShare<Share, ferry::SerialGroup>);

int main() {}
