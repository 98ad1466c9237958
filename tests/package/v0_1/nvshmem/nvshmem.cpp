// A rank of a job with a GPU, by an installed Ferry: built to see that all it needs is found.
#include <ferry/cuda/nvshmem_world.h>
#include <ferry/ferry.h>

#include <cstdio>
#include <exception>

int main() {
  try {
    const auto world = ferry::make_nvshmem_world();
    std::printf("rank %d of %d\n", world->rank(), world->size());
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
