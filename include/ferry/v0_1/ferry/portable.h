// The name of formats/portable.h in version 0.1.
#pragma once

#include "ferry/formats/portable.h"
