// The SwiGLU kernel of ColumnFormats and of Bf16: one text for all of them and for all inputs. A thread takes 8 or 16
// columns of a row at a time, a warp 32 neighbouring threads' of them; warps take turns over all rows. A warp's first
// columns follow only from its number, so they are on their way before the number of rows is known; the next are while
// these are encoded and stored.
#pragma once

#include "ferry/detail/activation/swiglu_math.h"
#include "ferry/detail/cuda/activation/row_groups.cuh"
#include "ferry/detail/cuda/activation/swiglu_launch.h"
#include "ferry/detail/cuda/activation/warp_group.cuh"
#include "ferry/detail/cuda/team/ptx_launch.cuh"
#include "ferry/detail/formats/format_list.h"
#include "ferry/detail/layout/scale_layout.h"

namespace ferry::cuda {

// Columns that a thread takes at a time. 8 columns, so that the first are done soon. 16 where a code is smaller than a
// byte: a word then has codes of 16 columns, and NVFP4's scale costs a thread as much for 8 columns.
template <class F>
inline constexpr int kSwigluColumns = F::payload_bytes(16) >= 16 ? 8 : 16;
template <class F, class Input, bool kInterleaved>
using SwigluColumnsOf = activation::SwigluColumns<Input, kInterleaved, kSwigluColumns<F>>;

// Blocks that a multiprocessor holds at once. A thread's columns, and NVFP4's scales, take the registers that limit it.
template <class F, class Input>
constexpr int swiglu_blocks() {
  constexpr bool kIsF32 = sizeof(typename Input::Stored) == 4;
  if (kSwigluColumns<F> == 8) return kIsF32 ? 4 : 5;
  if (kIsF32) return 2;
  return F::block() == 16 ? 3 : 4;
}

// A row, and the lane of it that a thread is.
struct RowLane {
  std::uint32_t row;
  int lane;

  __device__ static RowLane first_of(const SwigluParams& p) {
    const int index = first_turn() * WarpGroup::kWidth + WarpGroup{}.thread();
    const int row = p.lanes.quotient(index);
    return {static_cast<std::uint32_t>(row), index - row * p.lanes.divisor()};
  }
  // To the warp's next turn.
  __device__ void step(const SwigluParams& p) {
    row += static_cast<std::uint32_t>(p.step_rows);
    lane += p.step_lanes;
    if (lane < p.lanes.divisor()) return;
    lane -= p.lanes.divisor();
    ++row;
  }
  template <int kColumns>
  __device__ bool exists(const SwigluParams& p, std::uint32_t rows) const {
    return row < rows && lane * kColumns < p.work.inter;
  }
};

// Where the scales of a format lie. Only formats with blocks of 32 columns may be tiled or not; for all others the
// layout is a constant of the kernel.
template <class F>
__device__ ScaleTensor scale_tensor(const SwigluParams& p) {
  ScaleTensor tensor = p.work.scales;
  if constexpr (F::block() != 32)
    tensor.layout = F::scale_layout();
  else if (tensor.layout != ScaleLayout::tiled)  // these can have tiles or not
    tensor.layout = ScaleLayout::row_major;
  return tensor;
}

// Stores one scale at `index`, and zeros behind a row's last scale where tiles round columns up. It never stores
// outside the tensor: rows are below its capacity, and tiles, which may lie anywhere, are checked.
template <class F>
__device__ void store_scale(const SwigluParams& p, const ScaleRow& at, int column, std::uint64_t index,
                            typename F::Stored scale) {
  const ScaleTensor tensor = scale_tensor<F>(p);
  auto* const scales = reinterpret_cast<typename F::Stored*>(tensor.base);
  if (tensor.layout != ScaleLayout::tiled) {
    scales[index] = scale;
    return;
  }
  const auto elements = static_cast<std::uint64_t>(p.scale_elements);
  if (index < elements) scales[index] = scale;
  if (column + 1 < tensor.scales_per_row) return;
#pragma unroll 1
  for (int behind = column + 1; behind % kScaleTileColumns != 0; ++behind) {
    const auto zero = static_cast<std::uint64_t>(scale_index(tensor, at, behind));
    if (zero < elements) scales[zero] = 0;
  }
}

// Where a thread stores its codes of a row and their scale. It finds that before its columns have come.
struct Targets {
  std::byte* payload;
  std::uint64_t scale = 0;  // index
};

__device__ inline std::byte* payload_at(const SwigluParams& p, const RowLane& at, unsigned bytes) {
  return p.work.payload + std::uint64_t{at.row} * p.payload_row_bytes +
         std::uint64_t{static_cast<unsigned>(at.lane)} * bytes;
}

// A thread's activated columns into the format.
template <class F>
struct EncodeTo {
  static constexpr int kColumns = kSwigluColumns<F>;
  static constexpr int kLanes = F::block() / kColumns;
  __device__ static Targets targets(const SwigluParams& p, const RowGroups& group, const RowLane& at) {
    return {payload_at(p, at, F::payload_bytes(kColumns)),
            static_cast<std::uint64_t>(scale_index(scale_tensor<F>(p), group.scale_row(at.row), at.lane / kLanes))};
  }
  __device__ static void run(const SwigluParams& p, const RowGroups& group, const RowLane& at, const Targets& to,
                             bool exist, const std::uint32_t (&values)[kColumns]) {
    const auto encoded = F::template encode_columns<kLanes, kColumns>(WarpGroup{}, values, group.input_scale(), exist);
    if (!exist) return;
    codec::store_words<sizeof encoded.words / 4>(encoded.words, to.payload);
    if (at.lane % kLanes == 0) store_scale<F>(p, group.scale_row(at.row), at.lane / kLanes, to.scale, encoded.scale);
  }
};
template <>
struct EncodeTo<Bf16> {
  static constexpr int kColumns = kSwigluColumns<Bf16>;
  __device__ static Targets targets(const SwigluParams& p, const RowGroups&, const RowLane& at) {
    return {payload_at(p, at, Bf16::payload_bytes(kColumns))};
  }
  __device__ static void run(const SwigluParams&, const RowGroups&, const RowLane&, const Targets& to, bool exist,
                             const std::uint32_t (&values)[kColumns]) {
    std::uint32_t words[kColumns / 2];
    Bf16::pack_columns(values, 0u, words);  // every NaN as 0x7FFF
    if (exist) codec::store_words<kColumns / 2>(words, to.payload);
  }
};

// Loads a thread's columns, unless its row is `rows` or a later one.
template <class Columns>
__device__ void fetch(const SwigluParams& p, const RowLane& at, std::uint32_t rows, typename Columns::Pairs& pairs) {
  using Stored = typename Columns::Stored;
  if (!at.exists<Columns::kCount>(p, rows)) return;
  constexpr unsigned kLaneBytes = Columns::first_element(Columns::kCount) * sizeof(Stored);
  const std::byte* const from =
      p.work.rows + std::uint64_t{at.row} * p.row_bytes + std::uint64_t{static_cast<unsigned>(at.lane)} * kLaneBytes;
  Columns::fetch(reinterpret_cast<const Stored*>(from), p.work.inter, pairs);
}

// All turns of a warp. The loads of `pairs`, at `at`, have been issued.
template <class F, class Input, bool kInterleaved, bool kClamped>
__device__ void activate_rows(const SwigluParams& p, std::uint32_t rows, RowLane at, RowGroups& groups,
                              typename SwigluColumnsOf<F, Input, kInterleaved>::Pairs& pairs) {
  using Columns = SwigluColumnsOf<F, Input, kInterleaved>;
  const auto turns = static_cast<int>(
      (std::uint64_t{rows} * static_cast<unsigned>(p.lanes.divisor()) + WarpGroup::kWidth - 1) / WarpGroup::kWidth);
  // All threads of a warp make the same number of turns, since threads that share a block exchange values.
#pragma unroll 1
  for (int turn = first_turn(); turn < turns; turn += warps_of_grid()) {
    const RowLane here = at;
    if (p.by_group) groups.move_to(p, here.row < rows ? here.row : rows - 1);
    const Targets to = EncodeTo<F>::targets(p, groups, here);
    std::uint32_t values[Columns::kCount];
    Columns::template activate<kClamped>(pairs, p.alpha, p.limit, values);
    at.step(p);
    fetch<Columns>(p, at, rows, pairs);
    EncodeTo<F>::run(p, groups, here, to, here.template exists<Columns::kCount>(p, rows), values);
  }
}

template <class F, class Input, bool kInterleaved>
__global__ void __launch_bounds__(kSwigluThreads, (swiglu_blocks<F, Input>()))
    swiglu_kernel(const __grid_constant__ SwigluParams p) {
  using Columns = SwigluColumnsOf<F, Input, kInterleaved>;
  const RowLane at = RowLane::first_of(p);
  const bool prefetches = first_turn() < p.prefetch_turns;
  typename Columns::Pairs pairs{};
  ptx::await_earlier_kernels();
  ptx::let_next_kernel_launch();
  if (prefetches) fetch<Columns>(p, at, p.most_rows, pairs);
  const std::uint32_t offered = p.work.row_offsets[p.work.groups];
  RowGroups groups(p);
  if (p.work.scales.layout == ScaleLayout::tiled) zero_scale_tails(p);
  const std::uint32_t rows = offered < p.most_rows ? offered : p.most_rows;
  if (!prefetches) fetch<Columns>(p, at, rows, pairs);
  if (p.clamped)
    activate_rows<F, Input, kInterleaved, true>(p, rows, at, groups, pairs);
  else
    activate_rows<F, Input, kInterleaved, false>(p, rows, at, groups, pairs);
}

}  // namespace ferry::cuda
