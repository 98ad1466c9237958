#include "exchange/agreement/together.h"

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "ferry/error.h"

namespace ferry {
namespace {

// How a rank's work ended. An empty text is success.
struct Outcome {
  std::int32_t kind;
  char text[508];
};

Outcome outcome_of(ErrorKind kind, const char* text) {
  Outcome outcome{static_cast<std::int32_t>(kind), {}};
  std::strncpy(outcome.text, text, sizeof outcome.text - 1);
  return outcome;
}

}  // namespace

void together(World& world, const std::function<void()>& work, const RankMask& mask,
              std::chrono::milliseconds deadline) {
  Outcome mine{};
  try {
    work();
  } catch (const PeerMissing&) {
    throw;
  } catch (const Error& error) {
    mine = outcome_of(error.kind(), error.what());
  } catch (const std::exception& error) {  // std::bad_alloc
    mine = outcome_of(ErrorKind::system, error.what());
  }
  std::vector<Outcome> all(static_cast<std::size_t>(world.size()));
  world.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)), mask, deadline);
  for (int rank = 0; rank < world.size(); ++rank) {
    Outcome& each = all[static_cast<std::size_t>(rank)];
    each.text[sizeof each.text - 1] = '\0';
    const std::string text = each.text;
    if (text.empty()) continue;
    throw Error(static_cast<ErrorKind>(each.kind),
                text.starts_with("rank ") ? text : "rank " + std::to_string(rank) + ": " + text);
  }
}

}  // namespace ferry
