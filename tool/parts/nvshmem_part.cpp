#include "tool/bench/nvshmem/put_rates.h"
#include "tool/parts/parts.h"
#include "tool/ranks/nvshmem/nvshmem_job.h"

namespace ferry::app {

void register_nvshmem_part() {
  set_nvshmem_starter(make_nvshmem_starter());
  gpu_measurers().measure_puts = measure_nvshmem_puts;
}

}  // namespace ferry::app
