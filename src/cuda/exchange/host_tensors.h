// HostTensors: tensors in host memory, staged through memory of a device. Each kind of tensor of a call has a place
// there, which grows as it must and is contiguous. The one adaptor for callers with host memory: StagedSteps and the
// tool use it.
#pragma once

#include <array>
#include <cstddef>
#include <memory>

#include "cuda/world/device_memory.h"
#include "ferry/exchange.h"

namespace ferry::cuda {

class HostTensors {
 public:
  enum Kind {
    kTokens,
    kTopkIds,
    kTopkWeights,
    kInputScale,
    kPayload,
    kScales,
    kRowOffsets,
    kExpertIds,
    kSrcInfo,
    kScalesOffsets,
    kRows,  // of the experts' output
    kSums,
    kKinds
  };

  // On the current device, which is current in every other call, too.
  HostTensors() : stream_(std::make_shared<MemoryStream>()) {}
  // Most memory of the device that tensors of an exchange take, whatever their dtypes.
  static std::size_t most_bytes(const Shape& shape, const RowLayout& layout);

  // Copies are enqueued here.
  cudaStream_t stream() const { return stream_->get(); }
  void wait() const { stream_->wait(); }

  // The device's tensor for `host`, whatever is in it; not given where `host` has no axes.
  Tensor place(Kind kind, const ConstTensor& host);
  // The same, with the host's bytes: all of them, or the first `lines` entries of the first axis.
  Tensor copy_in(Kind kind, const ConstTensor& host);
  Tensor copy_in_lines(Kind kind, const ConstTensor& host, std::int64_t lines);
  // Back to the host, into a tensor as the device's was placed for.
  void copy_out(Kind kind, const Tensor& host) const;
  // What a dispatch wrote, without what is behind its last row and its last tile of scales. Waits.
  void copy_out_rows(const DispatchOutput& host, const RowLayout& layout) const;

  // Frees the tensors, and keeps their stream until later.
  void free_with(DeferredFree& deferred);

 private:
  struct Place {
    std::unique_ptr<StreamMemory> memory;
    std::size_t bytes = 0;
  };
  const std::byte* data(Kind kind) const { return places_[kind].memory->data(); }
  void copy_out_lines(Kind kind, const Tensor& host, std::int64_t lines) const;
  void copy_out_columns(Kind kind, const Tensor& host, std::int64_t columns) const;

  std::shared_ptr<MemoryStream> stream_;
  std::array<Place, kKinds> places_;
};

}  // namespace ferry::cuda
