// The name of formats/input_row.h in version 0.1.
#pragma once

#include "ferry/formats/input_row.h"
