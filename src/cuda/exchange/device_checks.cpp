#include "cuda/exchange/device_checks.h"

#include <fmt/format.h>

#include <cstdint>

#include "cuda/device/refuse.h"
#include "cuda/exchange/order/stream_order.h"
#include "cuda/exchange/plan/kernel_plan.h"
#include "ferry/detail/cuda/state/cuda_check.h"

namespace ferry::cuda {
namespace {

constexpr int kHost = INT32_MIN;  // in place of a device

bool is_default(cudaStream_t stream) { return stream == nullptr || stream == cudaStreamLegacy; }

}  // namespace

DeviceChecks::DeviceChecks(const RankDevice& device, int rank, bool has_hooks)
    : device_(device.index),
      ranks_of_device_(device.ranks),
      shares_process_(device.deferred_free != nullptr),
      rank_(rank),
      has_hooks_(has_hooks) {
  stream_probe_.create();
}

void DeviceChecks::check_call(const CallOptions& call) const {
  check_host_call(call);
  require_own_stream(static_cast<cudaStream_t>(call.stream));
}

void DeviceChecks::check_host_call(const CallOptions& call) const {
  if (call.deadline.count() < 0)
    refuse(ErrorKind::invalid_argument, rank_, "deadline is {} ms; it must be 0 (the exchange's) or more",
           call.deadline.count());
  if (call.max_blocks < 0 || (call.max_blocks > 0 && call.max_blocks < kLeastBlocks))
    refuse(ErrorKind::invalid_argument, rank_, "max_blocks is {}; it must be 0 (no limit), or {} or more",
           call.max_blocks, kLeastBlocks);
  require_of_this_device(static_cast<cudaStream_t>(call.stream));
}

// Ranks that share the default stream would deadlock: a kernel of one rank would start only after a kernel of another
// rank has ended, which waits for the first.
void DeviceChecks::require_own_stream(cudaStream_t stream) const {
  if (is_default(stream) && ranks_of_device_ > 1 && shares_process_)
    refuse(ErrorKind::invalid_argument, rank_,
           "stream is the default one, and {} ranks of this process share device {}; give each a stream of its own, "
           "made with cudaStreamNonBlocking, or cudaStreamPerThread for ranks that are threads",
           ranks_of_device_, device_);
}

void DeviceChecks::require_of_this_device(cudaStream_t stream) const {
  if (is_default(stream)) return;
  if (capture_of(stream) != kNoCapture) {
    // CUDA does not tell the device of a stream that is being captured. Recording an event adds no node to the graph,
    // and fails unless the event is of the same device.
    const cudaError_t status = cudaEventRecord(stream_probe_.get(), stream);
    if (status != cudaErrorInvalidResourceHandle) return cuda_check(status, "cudaEventRecord");
    cudaGetLastError();
    refuse(ErrorKind::invalid_argument, rank_, "the captured stream is not of device {}, which this exchange runs on",
           device_);
  }
  int device = device_;
  cuda_check(cudaStreamGetDevice(stream, &device), "cudaStreamGetDevice");
  if (device != device_)
    refuse(ErrorKind::invalid_argument, rank_, "stream is of device {}; this exchange runs on device {}", device,
           device_);
}

void DeviceChecks::require_on_device(const char* name, const void* pointer) const {
  if (pointer == nullptr) return;
  cudaPointerAttributes attributes{};
  cuda_check(cudaPointerGetAttributes(&attributes, pointer), "cudaPointerGetAttributes");
  if (attributes.type == cudaMemoryTypeManaged) return;
  require_device(name, attributes.type == cudaMemoryTypeDevice ? attributes.device : kHost);
}

void DeviceChecks::require_on_device(const char* name, const ConstTensor& tensor) const {
  if (!tensor) return;
  switch (tensor.device.kind) {
    case Device::Kind::unknown:
      return require_on_device(name, tensor.data);
    case Device::Kind::cpu:
      return require_device(name, kHost);
    case Device::Kind::cuda:
      return require_device(name, tensor.device.index);
  }
}

void DeviceChecks::require_device(const char* name, int device) const {
  if (device == kHost)
    refuse(ErrorKind::invalid_argument, rank_, "{} is host memory; it must be memory of device {}", name, device_);
  if (device != device_)
    refuse(ErrorKind::invalid_argument, rank_, "{} is memory of device {}; this exchange runs on device {}", name,
           device, device_);
}

// Bulk copies need multiples of 16 bytes.
void DeviceChecks::require_aligned_rows(const char* name, const void* data, std::int64_t row_bytes) const {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  if (address % 16 != 0 || row_bytes % 16 != 0)
    refuse(ErrorKind::invalid_argument, rank_,
           "{} starts at {:#x} with {} bytes from row to row; both must be multiples of 16", name, address, row_bytes);
}

// A kernel cannot call a function that was not compiled with it: registers and stack are assigned at link time.
void DeviceChecks::refuse_pointer(const char* name, bool given) const {
  if (given && !has_hooks_)
    refuse(
        ErrorKind::unsupported, rank_,
        "{} is a pointer to a function, which kernels cannot call; give it to a CompiledExchange "
        "(ferry/cuda/compiled_exchange.cuh; over NVSHMEM compiled_nvshmem_exchange.cuh), which compiles it into them",
        name);
}

void DeviceChecks::check_dispatch_input(const DispatchInput& in, const DispatchArgs& args) const {
  refuse_pointer("router_weight", in.router_weight != nullptr);
  if (in.tokens.elements() != 0) require_on_device("tokens", in.tokens);
  if (in.tokens.elements() != 0) require_on_device("token_scales", in.token_scales);
  if (in.topk_ids.elements() != 0) require_on_device("topk_ids", in.topk_ids);
  if (in.topk_weights && in.topk_weights.elements() != 0) require_on_device("topk_weights", in.topk_weights);
  if (in.in_rank.elements() != 0) require_on_device("in_rank", in.in_rank);
  require_on_device("expert_counts", in.expert_counts);
  require_on_device("input_scale", in.input_scale);
  if (in.tokens.elements() != 0) require_on_device("token_global_scales", in.token_global_scales);
  require_on_device("handle", in.handle);
  const auto scale = reinterpret_cast<std::uintptr_t>(in.input_scale);
  if (scale % sizeof(float) != 0)
    refuse(ErrorKind::invalid_argument, rank_, "input_scale is at {:#x}; its address must be a multiple of {}", scale,
           sizeof(float));
  if (args.num_tokens > 0 && !args.is_encoded()) require_aligned_rows("tokens", args.tokens, args.row_stride);
}

void DeviceChecks::check_rows(const CheckContext& context, const DispatchOutput& out) const {
  require_on_device("payload", out.payload);
  require_on_device("scales", out.scales);
  require_on_device("row_offsets", out.row_offsets);
  require_on_device("expert_ids", out.expert_ids);
  require_on_device("src_info", out.src_info);
  require_on_device("scales_offsets", out.scales_offsets);
  require_on_device("counts", out.counts);
  require_on_device("row_topk_ids", out.row_topk_ids);
  require_on_device("row_topk_weights", out.row_topk_weights);
  require_on_device("source_offsets", out.source_offsets);
  require_on_device("gather", out.gather);
  require_on_device("source_starts", out.source_starts);
  require_on_device("global_scales", out.global_scales);
  require_on_device("row_weights", out.row_weights);
  require_on_device("row_sources", out.row_sources);
  require_on_device("messages", out.messages);
  require_on_device("row_scales", out.row_scales);
  require_on_device("overflow", out.overflow);
  require_on_device("cumulative_counts", out.cumulative_counts);
  require_on_device("waited_ns", out.waited_ns);
  require_on_device("handle", out.handle);
  const auto scales = reinterpret_cast<std::uintptr_t>(out.scales.data);
  if (context.layout.scale_layout == ScaleLayout::tiled && scales % 16 != 0)
    refuse(ErrorKind::invalid_argument, rank_,
           "scales starts at {:#x}; on a GPU the address of tiled scales must be a multiple of 16", scales);
}

void DeviceChecks::check_combine_input(const CombineInput& in, const CombineArgs& args) const {
  refuse_pointer("router_weight", in.router_weight != nullptr);
  if (in.rows.elements() != 0) require_on_device("rows", in.rows);
  require_on_device("topk_weights", in.topk_weights);
  if (args.num_row_weights != 0) require_on_device("row_topk_weights", in.row_topk_weights);
  require_on_device("handle", in.handle);
  if (in.rows.elements() != 0) require_aligned_rows("rows", args.rows, args.row_stride);
  int index = 0;
  for (const ConstTensor& bias : in.bias) {
    if (!bias) continue;
    require_on_device("bias", bias);
    require_aligned_rows("bias", args.bias[index].data, args.bias[index].token_bytes);
    ++index;
  }
}

void DeviceChecks::check_sums(const CombineOutput& out, const CombineOut& sums, int num_tokens) const {
  refuse_pointer("epilogue", out.epilogue != nullptr);
  require_on_device("waited_ns", out.waited_ns);
  if (num_tokens == 0) return;
  require_on_device("tokens", out.tokens);
  require_on_device("topk_weights", out.topk_weights);
  require_aligned_rows("tokens", sums.tokens, sums.token_bytes);
}

}  // namespace ferry::cuda
