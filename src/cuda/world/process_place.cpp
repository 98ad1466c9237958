#include "cuda/world/process_place.h"

#include <fmt/core.h>

#include "ferry/cuda/cuda_world.h"
#include "ferry/error.h"

namespace ferry::cuda {

int choose_device(int device, const ProcessPlace& place) {
  const int available = num_cuda_devices();
  const int local = place.local_rank >= 0 ? place.local_rank : place.rank;
  const int chosen = device >= 0 ? device : (available == 1 ? 0 : local);
  if (available == 0) throw Error(ErrorKind::unsupported, fmt::format("rank {}: no GPU was found", place.rank));
  if (chosen >= available)
    throw Error(
        ErrorKind::invalid_argument,
        fmt::format("rank {}: device {} does not exist; this process sees {}. Give each rank a GPU, or let ranks "
                    "share them (share_gpus) and say which each one has",
                    place.rank, chosen, available));
  return chosen;
}

}  // namespace ferry::cuda
