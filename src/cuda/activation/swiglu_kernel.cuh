// The SwiGLU kernel: one text for all formats and inputs. A thread takes 16 columns of a row at a time; the next 16 are
// on their way while it activates, encodes and stores these. Blocks share the rows evenly, whatever their number is.
#pragma once

#include "activation/swiglu_math.h"
#include "cuda/activation/swiglu_launch.h"
#include "cuda/groups.cuh"
#include "cuda/ptx_launch.cuh"
#include "shared/codec/formats.h"
#include "shared/scale_layout.h"

namespace ferry::cuda {

// Blocks that a multiprocessor holds at once: 64 registers a thread more for every further 4 bytes of input.
template <class Input>
inline constexpr int kSwigluBlocks = sizeof(typename Input::Stored) == 4 ? 2 : 3;

// A row, and the lane of it that a thread is.
struct RowLane {
  std::uint32_t row;
  int lane;

  __device__ void step(const SwigluParams& p) {
    row += static_cast<std::uint32_t>(p.step_rows);
    lane += p.step_lanes;
    if (lane < p.lanes_per_row) return;
    lane -= p.lanes_per_row;
    ++row;
  }
};

// A block's run of lanes, counted through all rows.
struct LaneShare {
  std::int64_t begin;
  int count;
};

__device__ inline std::int64_t divide(std::int64_t a, int b) {
  return a >> 32 == 0 ? static_cast<std::int64_t>(static_cast<std::uint32_t>(a) / static_cast<std::uint32_t>(b))
                      : a / b;
}

__device__ inline LaneShare share_of_block(const SwigluParams& p, std::int64_t rows) {
  const std::int64_t total = rows * p.lanes_per_row;
  const auto blocks = static_cast<int>(gridDim.x);
  const std::int64_t share =
      (divide(total + blocks - 1, blocks) + WarpGroup::kWidth - 1) / WarpGroup::kWidth * WarpGroup::kWidth;
  const std::int64_t begin = share * static_cast<int>(blockIdx.x);
  const std::int64_t left = total - begin;
  return {begin, static_cast<int>(left < 0 ? 0 : left < share ? left : share)};
}

// The group that a thread's rows are in; rows only grow. `offsets` are row_offsets in shared memory.
class GroupOfRow {
 public:
  __device__ GroupOfRow(const SwigluParams& p, const std::uint32_t* offsets, std::uint32_t row) {
    if (!p.by_group) return;
    int low = 0;
    for (int high = p.work.groups; high - low > 1;) {
      const int middle = (low + high) / 2;
      (offsets[middle] <= row ? low : high) = middle;
    }
    enter(p, offsets, low);
  }
  __device__ void move_to(const SwigluParams& p, const std::uint32_t* offsets, std::uint32_t row) {
    if (row < end_) return;
    int group = group_;
    while (group + 1 < p.work.groups && row >= offsets[group + 1]) ++group;
    enter(p, offsets, group);
  }
  __device__ float input_scale() const { return input_scale_; }
  __device__ ScaleRow scale_row(std::uint32_t row) const { return {row, first_, scales_offset_}; }

 private:
  __device__ void enter(const SwigluParams& p, const std::uint32_t* offsets, int group) {
    group_ = group;
    first_ = offsets[group];
    end_ = offsets[group + 1];
    if (p.work.scales_offsets != nullptr) scales_offset_ = p.work.scales_offsets[group];
    if (p.work.input_scales != nullptr) input_scale_ = p.work.input_scales[group];
  }

  int group_ = 0;
  std::uint32_t first_ = 0;
  std::uint32_t end_ = 0xffffffffu;
  std::uint32_t scales_offset_ = 0;
  float input_scale_ = 1.0f;
};

// One scale, and zeros behind a row's last one where tiles round columns up. Never outside the tensor.
template <class F>
__device__ void store_scale(const SwigluParams& p, const ScaleRow& at, int column, typename F::Stored scale) {
  ScalePlace place = p.work.scales;
  if constexpr (F::block() != 32) place.layout = F::scale_layout();  // the others can have tiles or not
  auto* const scales = reinterpret_cast<typename F::Stored*>(place.base);
  const auto elements = static_cast<std::uint64_t>(p.scale_elements);
  const auto index = static_cast<std::uint64_t>(scale_index(place, at, column));
  if (index < elements) scales[index] = scale;
  if (place.layout != ScaleLayout::tiled || column + 1 < place.scales_per_row) return;
#pragma unroll 1
  for (int behind = column + 1; behind % kScaleTileColumns != 0; ++behind) {
    const auto zero = static_cast<std::uint64_t>(scale_index(place, at, behind));
    if (zero < elements) scales[zero] = 0;
  }
}

// Sixteen activated columns into the format.
template <class F>
struct EncodeTo {
  static constexpr int kLanes = F::block() / kSwigluColumns;
  __device__ static void run(const SwigluParams& p, const GroupOfRow& group, const RowLane& at, bool exist,
                             const std::uint32_t (&values)[kSwigluColumns]) {
    const auto encoded =
        F::template encode_columns<kLanes, kSwigluColumns>(WarpGroup{}, values, group.input_scale(), exist);
    if (!exist) return;
    constexpr int kWords = sizeof encoded.words / 4;
    codec::store_words<kWords>(encoded.words, p.work.payload + at.row * p.work.payload_row_bytes +
                                                  static_cast<std::size_t>(at.lane) * kWords * 4);
    if (at.lane % kLanes == 0) store_scale<F>(p, group.scale_row(at.row), at.lane / kLanes, encoded.scale);
  }
};
template <>
struct EncodeTo<Bf16> {
  static constexpr int kLanes = 1;
  __device__ static void run(const SwigluParams& p, const GroupOfRow&, const RowLane& at, bool exist,
                             const std::uint32_t (&values)[kSwigluColumns]) {
    std::uint32_t words[kSwigluColumns / 2];
    Bf16::pack_columns(values, 0u, words);  // every NaN as 0x7FFF
    if (!exist) return;
    codec::store_words<kSwigluColumns / 2>(
        words, p.work.payload + at.row * p.work.payload_row_bytes + static_cast<std::size_t>(at.lane) * sizeof words);
  }
};

template <class F, class Input, bool kInterleaved, bool kClamped>
__device__ void activate_share(const SwigluParams& p, const LaneShare& share, const std::uint32_t* offsets) {
  using Columns = activation::SwigluColumns<Input, kInterleaved>;
  using Stored = typename Input::Stored;
  const auto* const rows = reinterpret_cast<const Stored*>(p.work.rows);
  const int inter = p.work.inter;
  int index = static_cast<int>(threadIdx.x);
  if (index / WarpGroup::kWidth * WarpGroup::kWidth >= share.count) return;
  const std::int64_t first = share.begin + index;
  const std::int64_t first_row = divide(first, p.lanes_per_row);
  RowLane at{static_cast<std::uint32_t>(first_row), static_cast<int>(first - first_row * p.lanes_per_row)};
  GroupOfRow group(p, offsets, at.row);

  typename Columns::Pairs next{};
  const auto fetch_next = [&] {
    const bool exist = index < share.count && at.lane * kSwigluColumns < inter;
    if (exist)
      Columns::fetch(rows + static_cast<std::size_t>(at.row) * 2 * static_cast<std::size_t>(inter), inter,
                     at.lane * kSwigluColumns, next);
    return exist;
  };
  bool next_exist = fetch_next();
  // All threads of a warp make the same number of turns: those that share a block talk to each other.
#pragma unroll 1
  for (int turn = index / WarpGroup::kWidth * WarpGroup::kWidth; turn < share.count; turn += kSwigluThreads) {
    const typename Columns::Pairs pairs = next;
    const RowLane here = at;
    const bool exist = next_exist;
    index += kSwigluThreads;
    at.step(p);
    next_exist = fetch_next();
    if (p.by_group) group.move_to(p, offsets, here.row);
    std::uint32_t values[kSwigluColumns];
    if (__all_sync(WarpGroup::kAllThreads, Columns::largest_gate(pairs) <= p.moderate_gate))
      Columns::template activate<kClamped, true>(pairs, p.alpha, p.limit, values);
    else
      Columns::template activate<kClamped, false>(pairs, p.alpha, p.limit, values);
    EncodeTo<F>::run(p, group, here, exist, values);
  }
}

// Tiles only: scale 0 for the rows of each group's last tile that lie past its end; four columns at a time.
__device__ inline void zero_scale_tails(const SwigluParams& p, const std::uint32_t* offsets) {
  const ScalePlace& place = p.work.scales;
  const auto tile_columns = static_cast<std::uint32_t>(tiled_scales_per_row(place.scales_per_row) / kScaleTileColumns);
  const std::uint32_t total = static_cast<std::uint32_t>(p.work.groups) * tile_columns * kScaleTileRows;
  for (std::uint32_t i = blockIdx.x * kSwigluThreads + threadIdx.x; i < total; i += gridDim.x * kSwigluThreads) {
    const std::uint32_t row = i % kScaleTileRows;
    const std::uint32_t group = i / kScaleTileRows / tile_columns;
    const std::uint32_t column = i / kScaleTileRows % tile_columns * kScaleTileColumns;
    const std::uint32_t rows = offsets[group + 1] - offsets[group];
    if (rows % kScaleTileRows == 0 || row < rows % kScaleTileRows) continue;
    const ScaleRow at{std::int64_t{offsets[group]} + rows / kScaleTileRows * kScaleTileRows + row, offsets[group],
                      p.work.scales_offsets[group]};
    const auto index = static_cast<std::uint64_t>(scale_index(place, at, static_cast<int>(column)));
    if (index < static_cast<std::uint64_t>(p.scale_elements))
      *reinterpret_cast<std::uint32_t*>(place.base + index) = 0u;
  }
}

// The rows that exist, read on the device; row_offsets come to shared memory where rows are looked up in them.
__device__ inline std::int64_t read_rows(const SwigluParams& p, std::uint32_t* offsets) {
  std::uint32_t rows = 0;
  if (p.by_group) {
    for (int i = static_cast<int>(threadIdx.x); i <= p.work.groups; i += kSwigluThreads)
      offsets[i] = p.work.row_offsets[i];
    __syncthreads();
    rows = offsets[p.work.groups];
  } else {
    rows = p.work.row_offsets[p.work.groups];
  }
  return rows < p.work.scales.row_capacity ? std::int64_t{rows} : p.work.scales.row_capacity;
}

template <class F, class Input, bool kInterleaved>
__global__ void __launch_bounds__(kSwigluThreads, kSwigluBlocks<Input>)
    swiglu_kernel(const __grid_constant__ SwigluParams p) {
  extern __shared__ std::uint32_t offsets[];
  ptx::await_earlier_kernels();
  ptx::let_next_kernel_start();
  const LaneShare share = share_of_block(p, read_rows(p, offsets));
  if (p.clamped)
    activate_share<F, Input, kInterleaved, true>(p, share, offsets);
  else
    activate_share<F, Input, kInterleaved, false>(p, share, offsets);
  if (p.work.scales.layout == ScaleLayout::tiled) zero_scale_tails(p, offsets);
}

template <class F, bool kInterleaved>
const void* swiglu_kernel_for(DType rows) {
  if (rows == DType::bf16) return reinterpret_cast<const void*>(&swiglu_kernel<F, codec::Bf16Input, kInterleaved>);
  if (rows == DType::f16) return reinterpret_cast<const void*>(&swiglu_kernel<F, codec::F16Input, kInterleaved>);
  return reinterpret_cast<const void*>(&swiglu_kernel<F, codec::F32Input, kInterleaved>);
}

template <TokenFormat F>
SwigluLauncher swiglu_launcher() {
  return {
      F::name(),
      [](DType rows, bool interleaved) {
        return interleaved ? swiglu_kernel_for<F, true>(rows) : swiglu_kernel_for<F, false>(rows);
      },
      [](DType rows) { return rows == DType::f32 ? kSwigluBlocks<codec::F32Input> : kSwigluBlocks<codec::Bf16Input>; }};
}

// One per format, each in a file of its own so that they build side by side.
SwigluLauncher bf16_swiglu();
SwigluLauncher fp8_block128_swiglu();
SwigluLauncher fp8_block128_ue8m0_swiglu();
SwigluLauncher mxfp8_swiglu();
SwigluLauncher mxfp6_e2m3_swiglu();
SwigluLauncher mxfp6_e3m2_swiglu();
SwigluLauncher mxfp4_swiglu();
SwigluLauncher nvfp4_swiglu();

}  // namespace ferry::cuda
