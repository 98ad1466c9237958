// The name of formats/thread_group.h in version 0.1.
#pragma once

#include "ferry/formats/thread_group.h"
