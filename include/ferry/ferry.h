// Ferry carries Mixture-of-Experts tokens to the ranks that own their experts, and back. This header includes the
// interface of every world. Worlds of processes (worlds/) and worlds of GPUs (cuda/) have headers of their own.
//
//   in reading order   shape.h, tensor.h, token_format.h, world.h, options.h, dispatch_output.h, exchange.h
//   besides            error.h, row_order.h, stats.h, trace.h
//   rows/              help with what a dispatch laid out: memory for it, SwiGLU
//   formats/           what a format of your own is written with
//   v0_1/              names of headers in version 0.1, for programs that include them so
#pragma once

#include "ferry/dispatch_output.h"
#include "ferry/error.h"
#include "ferry/exchange.h"
#include "ferry/options.h"
#include "ferry/row_order.h"
#include "ferry/rows/activation.h"
#include "ferry/rows/host_rows.h"
#include "ferry/shape.h"
#include "ferry/stats.h"
#include "ferry/tensor.h"
#include "ferry/token_format.h"
#include "ferry/trace.h"
#include "ferry/world.h"

namespace ferry {
inline constexpr const char* kVersion = "0.1.0";
}
