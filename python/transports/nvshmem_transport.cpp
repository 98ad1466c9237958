// Ranks over NVSHMEM, for the Python module.
#include <ferry/cuda/nvshmem_world.h>

#include "transport.h"

extern "C" __attribute__((visibility("default"))) ferry::ProcessWorld* ferry_make_nvshmem_world(
    const ferry::python::NvshmemStart& start) {
  ferry::NvshmemOptions options;
  options.place = start.place;
  options.device = start.device;
  options.nodes = start.nodes;
  options.ranks_per_node = start.ranks_per_node;
  options.heap_bytes = start.heap_bytes;
  options.share_gpus = start.share_gpus;
  options.deadline = start.deadline;
  return ferry::make_nvshmem_world(options).release();
}
