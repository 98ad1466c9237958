// The name of worlds/process_world.h in version 0.1.
#pragma once

#include "ferry/worlds/process_world.h"
