// Ferry carries Mixture-of-Experts tokens to the ranks that own their experts, and back. This header includes the
// interface of every world. Worlds of processes (process_world.h, processes.h, shmem_world.h) and worlds of GPUs
// (cuda/) have headers of their own.
#pragma once

#include "ferry/activation.h"
#include "ferry/dispatch_output.h"
#include "ferry/error.h"
#include "ferry/exchange.h"
#include "ferry/host_rows.h"
#include "ferry/row_order.h"
#include "ferry/shape.h"
#include "ferry/stats.h"
#include "ferry/tensor.h"
#include "ferry/token_format.h"
#include "ferry/trace.h"
#include "ferry/world.h"

namespace ferry {
inline constexpr const char* kVersion = "0.1.0";
}
