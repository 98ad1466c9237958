// The name of worlds/processes.h in version 0.1.
#pragma once

#include "ferry/worlds/processes.h"
