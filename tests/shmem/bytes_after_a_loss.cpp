// Two processes of OpenSHMEM: after one gave up on bytes of the other, none go between them, so none are taken for
// others.
#include <ferry/error.h>
#include <ferry/worlds/shmem_world.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using std::chrono::milliseconds;

constexpr std::size_t kChunk = std::size_t{256} << 10;  // what goes in one step

template <class Call>
void expect_missing(const char* what, int rank, const Call& call) {
  try {
    call();
  } catch (const ferry::PeerMissing& error) {
    if (error.record().missing_rank == rank) return;
    throw std::runtime_error(std::string(what) + " names another rank: " + error.what());
  }
  throw std::runtime_error(std::string(what) + " ended as if nothing were missing");
}

void meet(ferry::World& world) {
  const std::byte here{1};
  std::byte all[2];
  world.all_gather(std::span(&here, 1), all, {}, std::chrono::seconds(60));
}

void run(ferry::ProcessWorld& world) {
  const milliseconds long_enough(60'000);
  std::vector<std::byte> bytes(2 * kChunk);
  const auto first_half = std::span(bytes).first(kChunk);
  if (world.rank() == 0) expect_missing("a receive", 1, [&] { world.receive(first_half, 1, milliseconds(50)); });
  meet(world);
  // The first half of what rank 1 sends now is what rank 0 gave up on. The second must not come in its place.
  if (world.rank() == 0) expect_missing("the next receive", 1, [&] { world.receive(first_half, 1, long_enough); });
  if (world.rank() == 1) expect_missing("a send", 0, [&] { world.send(bytes, 0, milliseconds(500)); });
  meet(world);
  const int other = 1 - world.rank();
  expect_missing("a later send", other, [&] { world.send(bytes, other, long_enough); });
  expect_missing("a later receive", other, [&] { world.receive(bytes, other, long_enough); });
  meet(world);
}

}  // namespace

int main() {
  ferry::ShmemJob job;
  try {
    run(*job.make_world());
    job.finish();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    std::_Exit(1);
  }
}
