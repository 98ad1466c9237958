// The name of rows/activation.h in version 0.1.
#pragma once

#include "ferry/rows/activation.h"
