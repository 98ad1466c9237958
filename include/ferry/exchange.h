// Exchange: the buffers and options for one shape, and the calls that carry tokens to experts and back.
//
// A round is one dispatch and its combine. All calls are collective: the same calls in the same order on all ranks. One
// round is open at a time: a dispatch while a round is open gives that round's combine up. A combine that is given a
// handle is of no round, and no dispatch gives it up. One dispatch, and one combine with a handle, may be half done at
// the same time, in any order of their halves. Other calls that must overlap use two exchanges. Calls on one exchange
// come from one thread at a time.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "ferry/dispatch_output.h"
#include "ferry/error.h"
#include "ferry/options.h"
#include "ferry/row_order.h"
#include "ferry/shape.h"
#include "ferry/stats.h"
#include "ferry/tensor.h"
#include "ferry/token_format.h"
#include "ferry/world.h"

namespace ferry {

namespace cuda {
class CompiledAccess;
struct HookBytes;
struct Launchers;
}  // namespace cuda

// A handle is what a dispatch leaves of its routing at one rank: memory of the caller's, u8 [RowLayout::handle_bytes]
// or, short, of fewer bytes (ExchangeOptions::short_handles), at a multiple of 16 bytes, on the rank's device. Any
// number may be alive, and they may be copied. In a call all ranks give their handle of the same dispatch, or none
// does. A handle is good for any exchange of the same ranks, experts, top_k, max_tokens, skip_a2a and
// fused_shared_expert, whatever the format, hidden and reduction, also after its own exchange is gone. docs/handles.md
// has examples.

// What dispatch sends. dispatch_async has read it when it returns (on a GPU: in stream order). Only a handle is read
// until dispatch_wait returns.
struct DispatchInput {
  // bf16, f16 or f32 [n, hidden]: the exchange encodes them. Or u8 [n, RowLayout::payload_row_bytes]: tokens that come
  // encoded in the exchange's format, and are sent as they are. Columns contiguous, rows at any stride. On GPUs encoded
  // rows may start anywhere, and are copied fastest from multiples of 16 bytes. Ranks may differ.
  ConstTensor tokens{};
  ConstTensor topk_ids{};  // i32 or i64 [n, K], contiguous; distinct in a token; -1 is no expert
  // f32, bf16 or f16 [n, K], contiguous; not with exact; not given: 1. With either they count for combines by_rank, and
  // come out with rows (DispatchOutput::row_weights, row_topk_weights). Widened to float32 at once.
  ConstTensor topk_weights{};
  // One value, finite and > 0; null: 1. A format that uses it (nvfp4) needs the same value on all ranks; with encoded
  // tokens it is the value that they were encoded with. Where two differ on CPU ranks, dispatch_wait throws
  // Error(invalid_argument) on all ranks. Then messages have moved: the rows are wrong, the dispatch has no combine,
  // and the exchange goes on with another dispatch. GPU ranks learn of it in their next dispatch. The call after that,
  // or check(), throws Error(invalid_argument) with two ranks and their values. Nothing is given up.
  const float* input_scale = nullptr;
  // Not with exact: called as router_weight(context, token, k) in place of topk_weights.
  float (*router_weight)(void* context, int token, int k) = nullptr;
  void* router_weight_context = nullptr;
  // In place of ids. Give as many tokens as the handle's dispatch had: token i goes to the rows to which that dispatch
  // sent its token i. With late_weights the call may give new weights. DispatchOutput::row_topk_weights and the new
  // handle (DispatchOutput::handle) then hold them. The old handle is unchanged.
  ConstTensor handle{};
  // In place of ids, where destinations are known and experts are not. Rows are by_source, without ids and weights;
  // none are given. All ranks of a dispatch do so or none does.
  //   in_rank        u8 [n, R], contiguous: 1 where token i goes to rank r; to at most min(R, K) ranks
  //   expert_counts  i32 [E], contiguous: how many tokens this rank sends to each expert. They are delivered as they
  //                  are (RowCounts::by_expert, and DispatchOutput::counts, where a sum is at most 2^31 - 1), and not
  //                  compared with anything
  //   out of range   on GPUs a kernel finds it: the next call throws
  //   ranks differ   all CPU ranks refuse the dispatch, and GPU ranks do in wait_for_counts. A GPU rank that did not
  //                  ask, but gave counts, learns it by its next call: its rows are those of a dispatch by ids, and its
  //                  counts mean nothing
  ConstTensor in_rank{};
  ConstTensor expert_counts{};
  // Only with encoded tokens, where the format has scales: [n, RowLayout::scales_per_row] of RowLayout::scale_dtype,
  // column order, at any strides, also transposed.
  ConstTensor token_scales{};
  // Only with encoded tokens and dynamic_scales: f32 [n], contiguous: 1 / g of each token.
  ConstTensor token_global_scales{};
  // How this rank's rows lie; ranks may differ. One of ExchangeOptions::row_orders; with a handle, that of its
  // dispatch.
  RowOrder row_order = RowOrder::by_expert;
  // padded: rows from the first one of an expert to that of the next. 0: RowLayout::expert_rows, the most rows that an
  // expert can have, which is also the least unless rows may overflow; with a handle, that of its dispatch.
  std::int64_t expert_stride = 0;
  // reported, expected: the outputs may have any row_capacity, and padded rows any expert_stride. What travels is as if
  // all had fitted, and so are counts and offsets. Combine then takes rows for the row_capacity of its dispatch. The
  // rows of a fused shared expert must fit. Where padded experts have less than RowLayout::expert_rows, the dispatch
  // leaves no handle; nor does any whose rows may overflow in a world without WorldCapabilities::overflow_handles.
  // Ranks may differ.
  Overflow overflow = Overflow::refused;
  // 0: the exchange's own format. i: ExchangeOptions::more_formats[i - 1]. Payload, scales and rows are then those of
  // Exchange::layout(i). All ranks of a dispatch take the same. CPU ranks compare: where two differ, dispatch_wait
  // throws Error(invalid_argument) on all ranks, as for input scales, and with handles the exchange is over. GPU ranks
  // do not compare: rows that came in another format mean nothing.
  int format = 0;
};

// What combine sends back. combine_async has read it when it returns. Four things are read until combine_wait returns:
// `rows`, if there is a fused shared expert or late_weights is on; the weights of `exact`; bias; and a handle.
struct CombineInput {
  // bf16, f16 or f32 [>= row_offsets[groups], hidden]: the experts' output, columns contiguous. Where rows overflowed,
  // those past the row_capacity of the dispatch may be missing.
  ConstTensor rows{};
  ConstTensor src_info{};  // as dispatch wrote it, or not given; only compared with the round's routing
  // As at dispatch, [n, K]. exact: not given: 1. by_rank: only with late_weights, where this dispatch was given none,
  // its rows here are not by_source, and apply_weights is true; not given: those of dispatch. Each rank chooses by
  // itself.
  ConstTensor topk_weights{};
  // Called as router_weight(context, token, k) in place of topk_weights.
  float (*router_weight)(void* context, int token, int k) = nullptr;
  void* router_weight_context = nullptr;
  // Only where the exchange's reduction is either: by_rank or exact. Not given: the exchange's, or by_rank. Rows
  // by_source are sums, so with them it is by_rank. All ranks of a combine say the same; ranks that differ are told so,
  // as ranks that give different handles are (docs/handles.md), and the sums mean nothing.
  std::optional<Reduction> reduction{};
  // The handle of the dispatch whose rows go back: any dispatch, any number of times. by_rank uses the weights of that
  // dispatch. Without a handle the rows of the newest dispatch go back, once; if that dispatch was given a handle,
  // combine needs it, too.
  ConstTensor handle{};
  // bf16, f16 or f32 [n, hidden], both alike, columns contiguous, rows at any stride: added first, in this order, in
  // float32, before the one rounding. Not with unreduced output.
  ConstTensor bias[kMaxBias]{};
  // The order in which the partial sums of by_rank are added. Ranks may differ, as each sums its own tokens.
  SumOrder sum_order = SumOrder::by_rank;
  // by_rank: with false the weights given to dispatch are not applied: rows are added as they are. Each rank says so
  // for the rows that it sends, so all ranks say the same.
  bool apply_weights = true;
  // Only with returns_weights: f32 values that go home, as the gradients of router weights do. Rows by_source: [rows,
  // K]; else [rows]: a row's value goes to its (token, k). Those of padding and of a fused shared expert are not read.
  // Not given: none go home from this rank. With late_weights they are read until combine_wait returns. On GPUs a
  // handle of the other order ends the exchange on all ranks, and too few rows are told by the next call.
  ConstTensor row_topk_weights{};
};

struct CombineOutput {
  // bf16, f16 or f32 [n, hidden]; exact only also [n, K, hidden]: unreduced, a missing k as zeros. A sum that float16
  // cannot hold is infinite.
  Tensor tokens{};
  // In place of the store: epilogue(context, token, column, values, count) with unrounded float32 sums; each column of
  // a token comes once, tokens in any order, from any worker. `tokens` may then be left out.
  void (*epilogue)(void* context, int token, int column, const float* values, int count) = nullptr;
  void* epilogue_context = nullptr;
  // Only with returns_weights: f32 [n, K], contiguous. A token's values of one k, as its ranks gave them: by_source all
  // K of a row, also where the token names no expert of that rank. They are added in float32, ranks ascending. 0 where
  // there is none. May be left out.
  Tensor topk_weights{};
  // i64 [R], with skip_a2a [1]: nanoseconds that this combine waited for the results of each rank are added to it. May
  // be left out.
  Tensor waited_ns{};
};

// For dispatches in `format` (DispatchInput::format). Throws Error(invalid_argument) where shape and options do not
// fit.
RowLayout row_layout(const Shape& shape, const ExchangeOptions& options, int rank, int format = 0);

struct MemoryUse {
  struct Region {
    const char* name;
    std::size_t bytes;
  };
  std::vector<Region> regions;
  std::size_t total = 0;
};

// Symmetric memory that an exchange allocates on a rank. Rank 0 has the most, and this is its size.
// `has_remote_ranks`: some ranks are reached by puts only (SHMEM, NVSHMEM). A GPU rank has state besides,
// of its device alone: cuda_state_bytes (ferry/cuda/cuda_world.h). Throws Error(invalid_argument) as row_layout.
MemoryUse memory_use(const Shape& shape, const ExchangeOptions& options, bool has_remote_ranks = false);

// On GPUs each call enqueues kernels on CallOptions::stream and returns. "When it returns" then means: when these
// kernels have ended, in stream order.
//   tensors     lie in memory of the rank's GPU; tokens, rows, sums and their rows start at multiples of 16 bytes;
//               input_scale points to memory of the GPU; src_info of a combine is not read
//   ownership   the caller's. Kernels read and fill tensors when they run. Later work on the same stream may use the
//               tensors
//   errors      what only a kernel can find out is thrown by the next call, or by check(): a rank that does not come;
//               ids that are out of range or twice in a token (each counts as -1); an input_scale that is not finite
//               or not above 0; a combine with fewer rows than row_offsets[groups]
//   types       as on CPUs; with hooks combine's rows, bias and sums are bf16 or f32
//   hooks       router_weight and epilogue cannot be pointers to functions: Error(unsupported). A CompiledExchange
//               (ferry/cuda/compiled_exchange.cuh) has them in its kernels
//   host memory only a staged world takes it (ferry/cuda/cuda_world.h)
class Exchange {
 public:
  // Collective. Compares shape, format and options of all ranks, and allocates everything that the exchange will use.
  // `world` must outlive the exchange. Throws Error(invalid_argument) that says which value differs, or PeerMissing.
  Exchange(World& world, const Shape& shape, const ExchangeOptions& options = {});
  // The same in the memory of another exchange, of the same world, mask and skip_a2a, which allocated at least as much
  // on each rank: make the larger one first. Nothing of it may be half done. The new one has the memory now
  // (take_memory). Any number may share one memory. It lives as long as the last of them, and they may be destroyed in
  // any order. Throws also what take_memory does, and Error(unsupported) where WorldCapabilities::shared_memory is
  // false.
  Exchange(Exchange& memory_of, const Shape& shape, const ExchangeOptions& options = {});
  // On GPUs it may wait for all work of the rank's GPU. That ends a capture of any stream of the GPU, so capture none
  // meanwhile.
  ~Exchange();
  Exchange(Exchange&&) noexcept;
  Exchange& operator=(Exchange&&) noexcept;

  // Errors of each call:
  //   Error(invalid_argument)  an argument is bad. Nothing has moved, and the round is as it was before the call. On
  //                            GPUs the next call throws what only a kernel can find out (see above). Found only when
  //                            messages have moved:
  //     refused by all ranks   input scales that differ (DispatchInput::input_scale); more tokens than max_tokens on
  //                            one rank, unless it gives a handle or skip_a2a is on (docs/too-many-tokens.md). The
  //                            dispatch has no combine, and the exchange goes on with another dispatch. On GPUs ranks
  //                            that did not call wait_for_counts throw it later, and what they called since is void
  //     refused by one rank    outputs with fewer rows than came. No row was written. dispatch_wait may be called with
  //                            larger ones; on CPU ranks also after a refused dispatch()
  //     the exchange is over   handles of different dispatches; a handle that a kernel refuses
  //   Error(out_of_order)      the round does not allow the call; on GPUs also after a graph ran (docs/handles.md)
  //   PeerMissing              a rank does not come. Every later call throws it again
  void dispatch_async(const DispatchInput& in, const CallOptions& call = {});
  // Between the two, any number of times: waits until every rank has said what it sends here, so that the outputs can
  // be made to measure. With a handle the counts are as in its dispatch. It waits for no token, and another rank
  // need not call it. On GPUs only a dispatch for which it was called takes such outputs (docs/rows.md); in a capture
  // it throws Error(out_of_order). Throws Error(unsupported) where WorldCapabilities::asked_counts is false.
  RowCounts wait_for_counts(const CallOptions& call = {});
  void dispatch_wait(const DispatchOutput& out, const CallOptions& call = {});
  void dispatch(const DispatchInput& in, const DispatchOutput& out, const CallOptions& call = {});
  void combine_async(const CombineInput& in, const CallOptions& call = {});
  void combine_wait(const CombineOutput& out, const CallOptions& call = {});
  void combine(const CombineInput& in, const CombineOutput& out, const CallOptions& call = {});

  // Throws what was found out since the last call: PeerMissing, or Error(invalid_argument) once for each dispatch with
  // bad ids or combine with too few rows, and once for dispatches whose rows overflowed (Overflow::reported). It waits
  // for nothing, and is no call of the round. On GPUs it knows what ended kernels have reported. A replayed CUDA graph
  // makes no calls: call check() now and then, after a synchronisation.
  void check();

  // From the next round on these ranks take no part either. A mask only grows. A CUDA graph keeps the mask of its
  // capture. A rank waits for every rank that it has not masked. So every rank that goes on must mask a rank that has
  // left. Of two ranks that both go on, each masks the other or neither does; a third rank need not know.
  // A handle from before stays good: results that these ranks would send count as zeros, and a dispatch with it makes
  // the rows of their tokens padding (docs/handles.md).
  void add_to_mask(const RankMask& mask);

  // Gives the memory of the slots back until `restore`, which takes as much again at the same addresses: captured CUDA
  // graphs, handles and arrival_slots() stay good (docs/release.md says what stays allocated). Both are collective,
  // over the ranks that are not masked, and return when all ranks have done so. Between the two every call but check()
  // and the queries below is refused with Error(out_of_order), and no captured graph of the exchange may run on any
  // rank.
  //   rows      a combine that was still to come may follow `restore`. Rows in_place are lost
  //   stream    on GPUs release waits on the host for all work of the rank's GPU, restore for none. In a capture both
  //             throw Error(out_of_order)
  //   deadline  CallOptions::deadline, of each wait for the other ranks
  // Errors, on all ranks alike:
  //   Error(out_of_order)      an operation is half done, or the memory was (or was not) given back already. Nothing
  //                            has changed
  //   Error(invalid_argument)  what check() had to tell on one of them. Nothing has changed
  //   Error(unsupported)       WorldCapabilities::release is false
  //   Error(system)            the system refused. After release the memory counts as given back; after restore it
  //                            still does, and restore may be called again
  //   PeerMissing              a rank does not come. Every later call throws it again
  void release(const CallOptions& call = {});
  void restore(const CallOptions& call = {});

  // Of exchanges that share one memory one has it, at first the newest one. This call takes it: the other one's words
  // and tables go to host memory, and this one's come back. An exchange without the memory refuses every call but this
  // one, check() and the queries with Error(out_of_order), and no captured graph of it may run on any rank.
  // Collective, over the ranks that are not masked; does nothing where this one has the memory, or lies alone in it.
  //   kept      handles, captured graphs, arrival_slots(), numbers of rounds. A combine that was still to come may
  //             follow. Rows in_place are lost
  //   threads   one thread at a time calls and destroys exchanges that share a memory
  //   stream    as release
  //   deadline  CallOptions::deadline, of each wait for the other ranks
  // Errors, on all ranks alike:
  //   Error(out_of_order)      the one that has the memory is half done or released it; or a rank was masked since the
  //                            memory was allocated: it may still write there. Nothing has changed
  //   Error(invalid_argument)  what check() of either had to tell. Nothing has changed
  //   Error(system)            the system refused. No exchange may have the memory then; take_memory may come again
  //   PeerMissing              a rank does not come. Every later call of both throws it again
  void take_memory(const CallOptions& call = {});

  const Shape& shape() const;
  const ExchangeOptions& options() const;
  // Of this rank, for dispatches in this format (DispatchInput::format). Throws Error(invalid_argument) where the
  // exchange has no such format.
  const RowLayout& layout(int format = 0) const;
  const AnyFormat& format(int format = 0) const;  // throws as layout does
  // The same view for as long as the exchange lives. On a staged world of GPUs it is of host memory, into which each
  // dispatch in_place copies the slots; the first call, or the first such dispatch, allocates it.
  ArrivalSlots arrival_slots(int format = 0) const;
  int rank() const;
  // Symmetric memory of this rank; between release and restore what stays of it. Of exchanges that share a memory the
  // oldest counts all of it, and the others 0.
  std::size_t memory_bytes() const;
  bool takes_device_memory() const;  // calls take memory of the rank's GPU, enqueue kernels and return
  Stats stats() const;               // from any thread, also during a call

 private:
  friend class cuda::CompiledAccess;
  Exchange(World& world, const Shape& shape, const ExchangeOptions& options, const cuda::Launchers* kernels);
  void set_hooks(const cuda::HookBytes& hooks);  // of the next call
  void require_hooks();                          // from now on of each call that reads them

  class Front;
  std::unique_ptr<Front> front_;
};

namespace detail {
void dispatch_each(std::span<Exchange* const> exchanges, std::span<const DispatchInput> in,
                   std::span<const DispatchOutput> out, std::span<const CallOptions> calls);
void combine_each(std::span<Exchange* const> exchanges, std::span<const CombineInput> in,
                  std::span<const CombineOutput> out, std::span<const CallOptions> calls);
}  // namespace detail

// One call that runs the operation on all exchanges of this process. The spans have the same length; element i belongs
// to exchange i, and no exchange is there twice: else Error(invalid_argument), and none was called. Then every exchange
// is called, also after an error of another one; the first error comes back.
//   CPU ranks  one host thread for each; all are awaited
//   GPU ranks  the calling thread enqueues the kernels, exchange by exchange, and returns; it may capture their streams
// `call` goes to each exchange. A stream is of one GPU: with several GPUs give each exchange options of its own.
void dispatch_all(std::span<Exchange* const> exchanges, std::span<const DispatchInput> in,
                  std::span<const DispatchOutput> out, const CallOptions& call = {});
void combine_all(std::span<Exchange* const> exchanges, std::span<const CombineInput> in,
                 std::span<const CombineOutput> out, const CallOptions& call = {});

// The same with options for each exchange: `calls` is a span, a vector or an array of CallOptions.
template <std::convertible_to<std::span<const CallOptions>> Calls>
void dispatch_all(std::span<Exchange* const> exchanges, std::span<const DispatchInput> in,
                  std::span<const DispatchOutput> out, const Calls& calls) {
  detail::dispatch_each(exchanges, in, out, calls);
}
template <std::convertible_to<std::span<const CallOptions>> Calls>
void combine_all(std::span<Exchange* const> exchanges, std::span<const CombineInput> in,
                 std::span<const CombineOutput> out, const Calls& calls) {
  detail::combine_each(exchanges, in, out, calls);
}

}  // namespace ferry
