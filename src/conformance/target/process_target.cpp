#include "conformance/target/process_target.h"

#include <array>
#include <cstring>
#include <exception>

#include "conformance/target/case.h"

namespace ferry::conformance {
namespace {

constexpr std::chrono::minutes kLongestCase{5};

// How a process's part of a case ended.
struct Outcome {
  bool failed = false;
  bool skipped = false;
  std::array<char, 1000> text{};

  void quote(const std::exception& thrown) { std::strncpy(text.data(), thrown.what(), text.size() - 1); }
};

void run_on(const Processes& processes, int ranks, const std::function<void(World&)>& body) {
  Outcome mine;
  std::exception_ptr error;
  try {
    const std::unique_ptr<ProcessWorld> world = processes.make_world(ranks);
    if (world) body(*world);
  } catch (const Skipped& thrown) {
    mine.skipped = true;
    mine.quote(thrown);
  } catch (const std::exception& thrown) {
    error = std::current_exception();
    mine.failed = true;
    mine.quote(thrown);
  }
  std::vector<Outcome> all(static_cast<std::size_t>(processes.all->size()));
  processes.all->all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)), {},
                            kLongestCase);
  if (error) std::rethrow_exception(error);
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    if (all[rank].failed) throw std::runtime_error("process " + std::to_string(rank) + ": " + all[rank].text.data());
  for (const Outcome& each : all)
    if (each.skipped) throw Skipped(each.text.data());
}

}  // namespace

Target process_target(const Processes& processes) {
  Target target;
  target.name = processes.name;
  target.max_ranks = processes.all->size();
  target.hooks_may_throw = true;
  target.has_remote_ranks = [](const World& world) { return world.has_remote_ranks(); };
  target.run_ranks = [processes](int ranks, const std::function<void(World&)>& body) {
    run_on(processes, ranks, body);
  };
  return target;
}

}  // namespace ferry::conformance
