// Plain puts over OpenSHMEM (bench/processes/put_link.h).
#pragma once

#include "tool/bench/processes/put_link.h"

namespace ferry::app {

std::unique_ptr<PutLink> make_shmem_put_link(World& world, std::vector<PutLeg> legs, std::size_t most_bytes);

}  // namespace ferry::app
