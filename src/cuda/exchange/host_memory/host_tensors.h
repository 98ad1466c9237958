// HostTensors: host tensors, staged through device memory. Each kind of tensor has a contiguous buffer on the device,
// which grows when it must. StagedSteps and the tool use it: it is the one adaptor for callers with host memory.
#pragma once

#include <array>
#include <cstddef>
#include <memory>

#include "cuda/device/device_memory.h"
#include "ferry/exchange.h"

namespace ferry::cuda {

class HostTensors {
 public:
  // The handles are those that a dispatch is given, a combine is given, and a dispatch leaves.
  enum Kind {
    kReplayedHandle,
    kReturnedHandle,
    kLeftHandle,
    kTokens,
    kTokenScales,
    kTokenGlobalScales,
    kTopkIds,
    kTopkWeights,
    kWeightsOfCombine,  // which are read until its end: a dispatch between its halves has others
    kExpertCounts,
    kInputScale,
    kPayload,
    kScales,
    kRowOffsets,
    kExpertIds,
    kSrcInfo,
    kScalesOffsets,
    kCounts,
    kRowTopkIds,
    kRowTopkWeights,
    kSourceOffsets,
    kGlobalScales,
    kSourceStarts,
    kRowWeights,
    kRowSources,
    kMessages,
    kRowScales,
    kOverflow,
    kCumulativeCounts,
    kWaitedNs,
    kGather,
    kRows,  // of the experts' output
    kBias,
    kSecondBias,
    kReturningWeights,  // of rows, and where they come home
    kReturnedWeights,
    kCombineWaits,
    kSums,
    kKinds
  };

  // The outputs of a dispatch, except its handle. Outputs of rows have a line for each row; scales may lie otherwise.
  struct Output {
    Tensor DispatchOutput::*field;
    Kind kind;
    bool is_of_rows;
  };
  static constexpr Output kOutputs[] = {
      {&DispatchOutput::payload, kPayload, true},
      {&DispatchOutput::scales, kScales, true},
      {&DispatchOutput::row_offsets, kRowOffsets, false},
      {&DispatchOutput::expert_ids, kExpertIds, false},
      {&DispatchOutput::src_info, kSrcInfo, true},
      {&DispatchOutput::scales_offsets, kScalesOffsets, false},
      {&DispatchOutput::counts, kCounts, false},
      {&DispatchOutput::row_topk_ids, kRowTopkIds, true},
      {&DispatchOutput::row_topk_weights, kRowTopkWeights, true},
      {&DispatchOutput::source_offsets, kSourceOffsets, false},
  };

  // For the current device, which must be current in every call.
  HostTensors() : stream_(std::make_shared<MemoryStream>()) {}
  // The most device memory that the tensors of an exchange can take, whatever their dtypes are, with rows in this
  // order.
  static std::size_t most_bytes(const Shape& shape, const RowLayout& layout, RowOrder order);

  // The stream of all copies.
  cudaStream_t stream() const { return stream_->get(); }
  void wait() const { stream_->wait(); }

  // The device tensor for `host`, with any content; not given if `host` has no axes.
  Tensor buffer_for(Kind kind, const ConstTensor& host);
  // The same, with the bytes of `host`: all of them, or the first `rows` entries of the first axis.
  Tensor copy_in(Kind kind, const ConstTensor& host);
  Tensor copy_in_rows(Kind kind, const ConstTensor& host, std::int64_t rows);
  // Copies back to the host, into a tensor of the shape that buffer_for or copy_in got.
  void copy_out(Kind kind, const Tensor& host) const;
  // Copies back what a dispatch wrote, without payload and scales. Of tensors by row only rows that came are copied.
  // The caller waits.
  void copy_out_routing(const DispatchOutput& host, const RowLayout& layout) const;
  // Copies back what a dispatch wrote: its rows up to the last, and its scales up to the last tile; padded rows with
  // all between them. Waits.
  void copy_out_rows(const DispatchOutput& host, const RowLayout& layout) const;

  // Frees the buffers. `deferred` frees their stream later.
  void free_with(DeferredFree& deferred);

 private:
  struct Buffer {
    std::unique_ptr<StreamMemory> memory;
    std::size_t bytes = 0;
  };
  const std::byte* data(Kind kind) const { return buffers_[kind].memory->data(); }
  void copy_out_rows(Kind kind, const Tensor& host, std::int64_t rows) const;
  void copy_out_columns(Kind kind, const Tensor& host, std::int64_t columns) const;

  std::shared_ptr<MemoryStream> stream_;
  std::array<Buffer, kKinds> buffers_;
};

}  // namespace ferry::cuda
