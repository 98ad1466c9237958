// The name of worlds/shmem_world.h in version 0.1.
#pragma once

#include "ferry/worlds/shmem_world.h"
