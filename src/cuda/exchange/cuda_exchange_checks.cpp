// What CudaExchange refuses before anything is enqueued: memory and streams that are not of its device, addresses that
// its copies cannot take, and everything that exchange/validate.h checks on any backend.
#include <fmt/format.h>

#include <algorithm>

#include "cuda/exchange/cuda_exchange.h"
#include "cuda/world/refuse.h"

namespace ferry::cuda {

void CudaExchange::begin(const CallOptions& call) {
  check();
  if (call.deadline.count() < 0)
    refuse(ErrorKind::invalid_argument, rank_, "deadline is {} ms; it must be 0 (the exchange's) or more",
           call.deadline.count());
  if (call.max_blocks < 0 || (call.max_blocks > 0 && call.max_blocks < kLeastBlocks))
    refuse(ErrorKind::invalid_argument, rank_, "max_blocks is {}; it must be 0 (no limit), or {} or more",
           call.max_blocks, kLeastBlocks);
  const auto deadline = std::min(call.deadline.count() > 0 ? call.deadline : options_.deadline, kMaxDeadline);
  links_.deadline_ns = static_cast<std::uint64_t>(std::chrono::nanoseconds(deadline).count());
  require_own_stream(static_cast<cudaStream_t>(call.stream));
  links_.hooks = call.gpu_hooks != nullptr ? *call.gpu_hooks : HookBytes{};
}

void CudaExchange::require_own_stream(cudaStream_t stream) const {
  // The stream of all who name none: one rank's kernel would wait there for the end of another's, which waits for it.
  const bool is_of_all = stream == nullptr || stream == cudaStreamLegacy;
  if (is_of_all && place_.ranks > 1 && place_.deferred_free != nullptr)
    refuse(ErrorKind::invalid_argument, rank_,
           "stream is the default one, and {} ranks of this process share device {}; give each a stream of its own, "
           "made with cudaStreamNonBlocking, or cudaStreamPerThread for ranks that are threads",
           place_.ranks, place_.device);
  if (is_of_all) return;
  cudaStreamCaptureStatus capturing = cudaStreamCaptureStatusNone;
  cuda_check(cudaStreamIsCapturing(stream, &capturing), "cudaStreamIsCapturing");
  if (capturing != cudaStreamCaptureStatusNone) {
    // A captured stream does not tell its device. An event adds no node to the graph, and must be of the same device.
    const cudaError_t status = cudaEventRecord(stream_probe_.get(), stream);
    if (status != cudaErrorInvalidResourceHandle) return cuda_check(status, "cudaEventRecord");
    cudaGetLastError();
    refuse(ErrorKind::invalid_argument, rank_, "the captured stream is not of device {}, which this exchange runs on",
           place_.device);
  }
  int device = place_.device;
  cuda_check(cudaStreamGetDevice(stream, &device), "cudaStreamGetDevice");
  if (device != place_.device)
    refuse(ErrorKind::invalid_argument, rank_, "stream is of device {}; this exchange runs on device {}", device,
           place_.device);
}

void CudaExchange::require_on_device(const char* name, const void* pointer) const {
  if (pointer == nullptr) return;
  cudaPointerAttributes attributes{};
  cuda_check(cudaPointerGetAttributes(&attributes, pointer), "cudaPointerGetAttributes");
  if (attributes.type != cudaMemoryTypeDevice && attributes.type != cudaMemoryTypeManaged)
    refuse(ErrorKind::invalid_argument, rank_, "{} is host memory; it must be memory of device {}", name,
           place_.device);
  if (attributes.type == cudaMemoryTypeDevice && attributes.device != place_.device)
    refuse(ErrorKind::invalid_argument, rank_, "{} is memory of device {}; this exchange runs on device {}", name,
           attributes.device, place_.device);
}

// A kernel cannot call a function that was compiled apart from it: the two would not agree about registers and stack.
void CudaExchange::refuse_pointer(const char* name, bool given) const {
  if (given && options_.gpu_kernels == nullptr)
    refuse(
        ErrorKind::unsupported, rank_,
        "{} is a pointer to a function, which kernels cannot call; give it to a CompiledExchange "
        "(ferry/cuda/compiled_exchange.cuh; over NVSHMEM compiled_nvshmem_exchange.cuh), which compiles it into them",
        name);
}

void CudaExchange::require_inputs(const DispatchInput& in) const {
  refuse_pointer("router_weight", in.router_weight != nullptr);
  if (in.tokens.elements() != 0) require_on_device("tokens", in.tokens.data);
  if (in.topk_ids.elements() != 0) require_on_device("topk_ids", in.topk_ids.data);
  if (in.topk_weights && in.topk_weights.elements() != 0) require_on_device("topk_weights", in.topk_weights.data);
  require_on_device("input_scale", in.input_scale);
  const auto scale = reinterpret_cast<std::uintptr_t>(in.input_scale);
  if (scale % sizeof(float) != 0)
    refuse(ErrorKind::invalid_argument, rank_, "input_scale is at {:#x}; its address must be a multiple of {}", scale,
           sizeof(float));
}

void CudaExchange::require_outputs(const DispatchOutput& out) const {
  require_on_device("payload", out.payload.data);
  require_on_device("scales", out.scales.data);
  require_on_device("row_offsets", out.row_offsets.data);
  require_on_device("expert_ids", out.expert_ids.data);
  require_on_device("src_info", out.src_info.data);
  require_on_device("scales_offsets", out.scales_offsets.data);
  const auto scales = reinterpret_cast<std::uintptr_t>(out.scales.data);
  if (layout_.scale_layout == ScaleLayout::tiled && scales % 16 != 0)
    refuse(ErrorKind::invalid_argument, rank_,
           "scales starts at {:#x}; on a GPU the address of tiled scales must be a multiple of 16", scales);
}

DispatchArgs CudaExchange::check_input(const DispatchInput& in) {
  DispatchArgs args = check_dispatch_input(context(), in);
  require_inputs(in);
  const auto address = reinterpret_cast<std::uintptr_t>(args.tokens);
  if (args.num_tokens > 0 && (address % 16 != 0 || args.row_stride % 16 != 0))
    refuse(ErrorKind::invalid_argument, rank_,
           "tokens starts at {:#x} with {} bytes from row to row; both must be multiples of 16", address,
           args.row_stride);
  args.input_scale_at = in.input_scale;
  const TokenRange shared = shared_tokens(options_, rank_, args.num_tokens);
  args.shared_begin = shared.begin;
  args.shared_end = shared.end;
  return args;
}

CombineArgs CudaExchange::check_rows(const CombineInput& in) const {
  CombineArgs args = check_combine_input(context(), in, open_.num_tokens, 0);
  refuse_pointer("router_weight", in.router_weight != nullptr);
  if (in.rows.elements() != 0) require_on_device("rows", in.rows.data);
  require_on_device("topk_weights", in.topk_weights.data);
  if (in.rows.elements() != 0 && (reinterpret_cast<std::uintptr_t>(args.rows) % 16 != 0 || args.row_stride % 16 != 0))
    refuse(ErrorKind::invalid_argument, rank_,
           "rows starts at {} with {} bytes from row to row; both must be multiples of 16", fmt::ptr(args.rows),
           args.row_stride);
  if (args.num_rows == 0) {  // a kernel that wants some reads memory that is there, and reports it
    args.rows = links_.own;
    args.row_stride = 0;
    args.is_f32 = false;
  }
  args.shared_begin = open_.shared.begin;
  args.shared_end = open_.shared.end;
  return args;
}

CombineOut CudaExchange::check_sums(const CombineOutput& out) const {
  const CombineOut sums = check_combine_output(context(), out, open_.num_tokens);
  refuse_pointer("epilogue", out.epilogue != nullptr);
  if (open_.num_tokens == 0) return sums;
  require_on_device("tokens", sums.tokens);
  if (reinterpret_cast<std::uintptr_t>(sums.tokens) % 16 != 0 || sums.token_bytes % 16 != 0)
    refuse(ErrorKind::invalid_argument, rank_,
           "tokens starts at {} with {} bytes from row to row; both must be multiples of 16", fmt::ptr(sums.tokens),
           sums.token_bytes);
  return sums;
}

}  // namespace ferry::cuda
