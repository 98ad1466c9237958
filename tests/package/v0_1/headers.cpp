// Every header of version 0.1 that needs no nvcc, by its name there, and the options that one kind of rank reads.
#include <ferry/activation.h>
#include <ferry/cuda/activation.h>
#include <ferry/cuda/cuda_world.h>
#include <ferry/cuda/nvshmem_world.h>
#include <ferry/error.h>
#include <ferry/exchange.h>
#include <ferry/ferry.h>
#include <ferry/input_row.h>
#include <ferry/portable.h>
#include <ferry/process_world.h>
#include <ferry/processes.h>
#include <ferry/shape.h>
#include <ferry/shmem_world.h>
#include <ferry/stats.h>
#include <ferry/tensor.h>
#include <ferry/thread_group.h>
#include <ferry/token_format.h>
#include <ferry/world.h>

#include <chrono>

int main() {
  const ferry::Shape shape{.ranks = 2, .experts = 2, .top_k = 1, .max_tokens = 1, .hidden = 64};
  const ferry::ExchangeOptions options{.set_up_deadline = std::chrono::seconds(5), .workers = 2};
  const ferry::CallOptions call{.deadline = std::chrono::seconds(1), .stream = nullptr, .max_blocks = 24};
  const ferry::ProcessPlace place{.rank = 0, .size = 1};
  const ferry::SwigluOptions swiglu{.clamped = true};
  const ferry::InputRow row{nullptr, ferry::DType::bf16};
  const bool ok = options.workers == 2 && call.max_blocks == 24 && place.size == 1 && swiglu.clamped &&
                  row.dtype == ferry::DType::bf16 && ferry::SerialGroup{}.size() == 1 &&
                  ferry::row_layout(shape, options, 0).groups == 1;
  return ok ? 0 : 1;
}
