// ExchangeOptions, which an exchange is made with, and CallOptions, which each call may be given.
//
// What one backend alone reads stands behind what all read, at the end of its struct. Fields of version 0.1 lie flat
// there, since programs name them so in designated initialisers: workers, stream, max_blocks. Younger ones are members
// of a struct of their backend: GpuOptions.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "ferry/row_order.h"
#include "ferry/token_format.h"
#include "ferry/world.h"

namespace ferry {

enum class Reduction : std::uint8_t {
  by_rank,  // an expert rank sums its rows of a token and sends one partial; weights are given to dispatch
  exact,    // every row travels; weights are given to combine; unreduced output is possible
  either,   // each combine says which (CombineInput::reduction). Memory is that of exact
};
const char* to_string(Reduction reduction);

// In which order by_rank adds the partial sums of a token. `exact` always adds by k.
enum class SumOrder : std::uint8_t {
  by_rank,    // ranks ascending
  by_last_k,  // ranks by the largest k with which the token names each: the order of DeepEP's sums
};

// How tokens travel and lie in rows. The fields are those of ExchangeOptions.
struct DispatchFormat {
  AnyFormat format = format_named("bf16");
  bool tiled_scales = false;
  int expert_alignment = 0;
  bool dynamic_scales = false;
};

// What only GPU ranks read when an exchange is made.
struct GpuOptions {
  // Multiprocessors that no kernel of this exchange takes. Kernels of another library that wait for peers (NCCL's) need
  // room of their own: on two GPUs that run them in opposite orders each would wait for the other.
  int reserve_sms = 0;
};

// The constructor compares the fields of all ranks, up to `concurrent`. The fields after it may differ from rank to
// rank.
struct ExchangeOptions {
  AnyFormat format = format_named("bf16");
  Reduction reduction = Reduction::by_rank;
  bool tiled_scales = false;         // mxfp8 only: scales in 5-D tiles instead of row-major
  int expert_alignment = 0;          // first row of an expert: 1, 4, 8, 16, 32, 64 or 128; 0 means the format's default
  bool fused_shared_expert = false;  // own tokens become group 0 of the rows; combine adds the shared rows
  bool skip_a2a = false;             // tokens are replicated on all ranks: nothing is sent, combine gives a partial sum
  int allreduce_world_size = 1;      // skip_a2a: over how many ranks a fused shared expert's tokens are split
  // How results travel: partial sums, or rows where the reduction is exact. result_formats() lists the library's; a
  // format of the caller's own is taken, too. The sender encodes. The home of a token decodes and sums in float32. A
  // rank's own results are encoded as all others.
  AnyFormat result_format = format_named("bf16");
  // by_rank: weights may also be given to combine, or anew to a dispatch with a handle. Such a combine sends its
  // results when the weights of all ranks have come: on CPUs combine_async sends only weights, and results leave in
  // combine_wait.
  bool late_weights = false;
  // Each result takes weights home with it, K of them or, with exact, one: CombineInput::row_topk_weights.
  bool returns_weights = false;
  // nvfp4 only: each token is encoded with a global scale of its own, g = 2688 / its largest magnitude, in place of
  // input_scale. 1 / g comes out with each row (DispatchOutput::global_scales). A
  // CompiledExchange refuses it.
  bool dynamic_scales = false;
  // Further formats, of which each dispatch may take one (DispatchInput::format): at most kMostFormats - 1. A message
  // slot holds a message of any. A CompiledExchange refuses them.
  std::vector<DispatchFormat> more_formats{};
  RowOrders row_orders = kUsualRowOrders;  // which of them a dispatch may ask for
  // Copies of the slots where messages arrive: 2 or 4. Rows in_place are valid until this rank's next dispatch begins;
  // with 4 until the third next.
  int message_copies = 2;
  int concurrent = 1;                                     // exchanges that run at the same time on these ranks
  RankMask mask{};                                        // ranks that take no part
  std::chrono::milliseconds deadline = kDefaultDeadline;  // of every wait in a call, unless the call gives its own
  // The deadline of every wait while the exchange is made. 0 means the larger of `deadline` and 30 s: ranks allocate
  // then, and GPUs load kernels, each at its own speed.
  std::chrono::milliseconds set_up_deadline{0};
  // Handles that this rank leaves or gives may have fewer bytes: RowLayout::short_handle_bytes. It takes memory, on
  // GPUs of the device, for two whole ones.
  bool short_handles = false;

  // CPU ranks only: threads that work for this rank in a call, 1 to 1024, the caller's included.
  int workers = 1;
  GpuOptions gpu{};  // GPU ranks only
};

// The formats of an exchange: its own, and more_formats.
inline constexpr int kMostFormats = 16;

// The options of dispatches in `format`: it has become the exchange's own, and the own one has taken its place. So the
// same call on the result gives `options` again. `format` is one of them.
ExchangeOptions options_in(const ExchangeOptions& options, int format);

struct CallOptions {
  std::chrono::milliseconds deadline{0};  // of each wait in the call, at most 24 h; 0: the exchange's

  // GPU ranks only:
  // The cudaStream_t that the call goes to; null: the default stream. A call on another stream than the exchange's last
  // one waits for what that stream has by now, in a capture only where both streams are in it. So a stream lives until
  // the exchange has had its next call, check() among them. An exchange may outlive the stream of its last call.
  void* stream = nullptr;
  int max_blocks = 0;  // most blocks of a kernel, 3 or more, which leaves the rest to compute; 0: no limit
};

}  // namespace ferry
