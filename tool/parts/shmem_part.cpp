#include "tool/bench/shmem/shmem_put_link.h"
#include "tool/parts/parts.h"
#include "tool/ranks/shmem/shmem_job.h"

namespace ferry::app {

void register_shmem_part() {
  set_shmem_starter(make_shmem_starter());
  set_put_link(make_shmem_put_link);
}

}  // namespace ferry::app
