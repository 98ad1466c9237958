#include "ferry/world.h"

#include <algorithm>
#include <exception>
#include <string>
#include <string_view>

#include "base/abort_notice.h"
#include "base/debug_log.h"
#include "base/run_on_threads.h"
#include "exchange/open_exchanges.h"

namespace ferry {
namespace {

// The rank for which a rank failed, where it is another one.
int missing_rank_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const PeerMissing& missing) {
    return missing.record().missing_rank;
  } catch (...) {
    return -1;
  }
}

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& exception) {
    return exception.what();
  } catch (...) {
    return "an exception that is no std::exception";
  }
}

// The rank that caused the other errors: the first that failed, or the rank that it missed, and so on.
std::size_t first_cause(const ThreadErrors& errors) {
  std::size_t cause = errors.first;
  for (std::size_t steps = 0; steps < errors.of.size(); ++steps) {
    const int missing = missing_rank_of(errors.of[cause]);
    if (missing < 0 || static_cast<std::size_t>(missing) >= errors.of.size()) break;
    const auto next = static_cast<std::size_t>(missing);
    // A rank that names itself only repeats what the others say of it.
    if (next == cause || errors.of[next] == nullptr || missing_rank_of(errors.of[next]) == missing) break;
    cause = next;
  }
  return cause;
}

// Backends number the calls of a world. Who called barrier() does not know the numbers: "set-up call 4" becomes "a
// barrier (set-up call 4)".
std::string of_barrier(const std::string& what) {
  constexpr std::string_view kCall = "set-up call ";
  const std::size_t at = what.find(kCall);
  if (at == std::string::npos) return what;
  const std::size_t end = std::min(what.find_first_not_of("0123456789", at + kCall.size()), what.size());
  return what.substr(0, at) + "a barrier (" + what.substr(at, end - at) + ")" + what.substr(end);
}

}  // namespace

World::World() : open_exchanges_(std::make_shared<OpenExchanges>()) {}

std::unique_ptr<ExchangeSteps> World::make_compiled_steps(const Shape&, const ExchangeOptions&, const HeapMap&,
                                                          const cuda::Launchers&) {
  throw Error(ErrorKind::unsupported, "rank " + std::to_string(rank()) +
                                          ": kernels of the program itself need a world of GPUs; this one is " +
                                          backend());
}

std::unique_ptr<ExchangeSteps> World::make_steps_in(const std::shared_ptr<ExchangeMemory>&, const Shape&,
                                                    const ExchangeOptions&, const HeapMap&) {
  throw Error(ErrorKind::unsupported,
              "rank " + std::to_string(rank()) + ": exchanges of this world (" + backend() + ") cannot share memory");
}

// The reason goes first: who finds an exchange aborted asks for it.
void World::abort(const std::string& reason, int missing_rank) noexcept {
  try {
    const bool names_other = missing_rank >= 0 && missing_rank < size();
    const AbortNotice notice{rank(), names_other ? missing_rank : rank(), reason};
    if (!open_exchanges_->begin_abort(notice)) return;
    try {
      tell_aborted(notice);
    } catch (...) {
      // Then the exchanges still tell it.
    }
    open_exchanges_->abort_all();
  } catch (...) {
    // Then the others find it out at their deadlines.
  }
}

void World::barrier(const RankMask& mask, std::chrono::milliseconds deadline) {
  const std::byte token{1};
  std::vector<std::byte> all(static_cast<std::size_t>(size()));
  try {
    all_gather(std::span(&token, 1), all, mask, deadline);
  } catch (const Aborted&) {
    throw;
  } catch (const PeerMissing& missing) {
    throw PeerMissing(missing.record(), of_barrier(missing.what()));
  }
}

void run_worlds(std::span<const std::unique_ptr<World>> worlds, const std::function<void(World&)>& body) {
  const auto run = [&](std::size_t rank) {
    try {
      body(*worlds[rank]);
    } catch (...) {
      const std::exception_ptr error = std::current_exception();
      debug_log(DebugLevel::warn, static_cast<int>(rank), [&] { return "its body threw: " + text_of(error); });
      worlds[rank]->abort(text_of(error), missing_rank_of(error));
      throw;
    }
  };
  const auto not_started = [&](std::size_t rank) { worlds[rank]->abort("the system refused its thread"); };
  const ThreadErrors errors = collect_on_threads(worlds.size(), run, not_started);
  if (errors.any()) std::rethrow_exception(errors.of[first_cause(errors)]);
}

}  // namespace ferry
