// The GPU example of the README: one round on every GPU, FP8 there and bf16 back. Each expert hands its rows back as
// they are, so every token must come home as the sum of its weights times itself.
#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include "gpu_memory.h"

namespace {

constexpr int kTokens = 64;  // on each GPU
constexpr int kTopK = 2;
constexpr int kHidden = 512;

// In the place of grouped matmuls: the rows that arrived, decoded.
__global__ void run_experts(const __nv_fp8_e4m3* rows, const float* scales, std::int64_t capacity,
                            const std::uint32_t* row_offsets, int groups, __nv_bfloat16* results) {
  for (std::int64_t row = blockIdx.x; row < row_offsets[groups]; row += gridDim.x)
    for (int column = static_cast<int>(threadIdx.x); column < kHidden; column += static_cast<int>(blockDim.x))
      results[row * kHidden + column] =
          __float2bfloat16(static_cast<float>(rows[row * kHidden + column]) * scales[column / 128 * capacity + row]);
}

// A rank's tensors: what it sends, what dispatch writes, what its experts write, and the sums that come home.
class Layer {
 public:
  Layer(const ferry::RowLayout& layout, const std::vector<std::int32_t>& expert_ids)
      : layout_(layout),
        tokens_(std::vector<std::uint16_t>(kTokens * kHidden, 0x3f80)),  // 1.0
        ids_(expert_ids),
        weights_(std::vector<float>(kTokens * kTopK, 0.5f)),
        rows_(layout),
        results_(static_cast<std::size_t>(capacity()) * kHidden),
        sums_(kTokens * kHidden) {
    require_success(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  }
  ~Layer() { cudaStreamDestroy(stream); }

  ferry::DispatchInput tokens() const {
    return {.tokens = {tokens_.data(), ferry::DType::bf16, {kTokens, kHidden}},
            .topk_ids = {ids_.data(), ferry::DType::i32, {kTokens, kTopK}},
            .topk_weights = {weights_.data(), ferry::DType::f32, {kTokens, kTopK}}};
  }
  const ferry::DispatchOutput& rows() const { return rows_.outputs(); }
  void run_experts() const {
    ::run_experts<<<64, 128, 0, stream>>>(rows().payload.as<__nv_fp8_e4m3>(), rows().scales.as<float>(), capacity(),
                                          rows().row_offsets.as<std::uint32_t>(), layout_.groups, results_.data());
  }
  ferry::CombineInput results() const { return {.rows = {results_.data(), ferry::DType::bf16, {capacity(), kHidden}}}; }
  ferry::CombineOutput sums() const { return {.tokens = {sums_.data(), ferry::DType::f32, {kTokens, kHidden}}}; }
  bool is_right() const {
    const std::vector<float> sums = sums_.read();
    return std::count(sums.begin(), sums.end(), 1.0f) == static_cast<std::ptrdiff_t>(sums.size());
  }

  cudaStream_t stream = nullptr;

 private:
  std::int64_t capacity() const { return layout_.min_row_capacity; }

  ferry::RowLayout layout_;
  OnGpu<std::uint16_t> tokens_;
  OnGpu<std::int32_t> ids_;
  OnGpu<float> weights_;
  GpuRows rows_;
  OnGpu<__nv_bfloat16> results_;
  OnGpu<float> sums_;
};

std::vector<std::int32_t> ids_of(const ferry::Shape& shape) {
  std::vector<std::int32_t> ids;
  for (int token = 0; token < kTokens; ++token)
    ids.insert(ids.end(), {token % shape.experts, (token + 3) % shape.experts});
  return ids;
}

// How many ranks have the right sums.
int run_on_every_gpu(const std::vector<int>& devices) {
  std::vector<int> right(devices.size());
  const int ranks = static_cast<int>(devices.size());
  const ferry::Shape shape{
      .ranks = ranks, .experts = 8 * ranks, .top_k = kTopK, .max_tokens = kTokens, .hidden = kHidden};
  const auto worlds = ferry::make_cuda_worlds(devices);  // a rank for each GPU
  ferry::run_worlds(worlds, [&](ferry::World& world) {   // and a host thread for each rank
    const auto rank = static_cast<std::size_t>(world.rank());
    require_success(cudaSetDevice(devices[rank]));
    ferry::Exchange exchange(world, shape, {.format = ferry::format_named("fp8_block128")});
    const Layer layer(exchange.layout(), ids_of(shape));  // yours: tensors on this GPU, and a stream
    world.barrier();                                      // nobody allocates while the kernels of others wait
    exchange.dispatch(layer.tokens(), layer.rows(), {.stream = layer.stream});
    layer.run_experts();  // yours: grouped matmuls, on the same stream
    exchange.combine(layer.results(), layer.sums(), {.stream = layer.stream});
    require_success(cudaStreamSynchronize(layer.stream));
    exchange.check();  // throws what kernels found: a rank that did not come, a bad id
    right[rank] = layer.is_right();
  });
  return static_cast<int>(std::count(right.begin(), right.end(), 1));
}

}  // namespace

int main() {
  std::vector<int> devices;
  for (int device = 0; device < ferry::num_cuda_devices(); ++device) devices.push_back(device);
  if (devices.empty()) {
    std::printf("readme: skipped: no GPU was found\n");
    return 77;
  }
  try {
    const int gpus = static_cast<int>(devices.size()), right = run_on_every_gpu(devices);
    std::printf("%d of %d GPUs have the right sums\n", right, gpus);
    return right == gpus ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "readme: %s\n", error.what());
    return 1;
  }
}
