// A rank of a job, by an installed Ferry: built to see that all it needs is found.
#include <ferry/ferry.h>
#include <ferry/worlds/shmem_world.h>

#include <cstdio>
#include <exception>

int main() {
  try {
    ferry::ShmemJob job;
    const auto world = job.make_world();
    std::printf("rank %d of %d\n", world->rank(), world->size());
    job.finish();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
