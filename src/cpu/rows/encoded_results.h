// EncodedResults: the ops of a combine whose results travel in a format of ExchangeOptions::result_format. The sender
// sums in float32 and encodes; the home of a token decodes, and sums float32 rows. Own results are encoded, too, so a
// sum does not depend on where its experts are.
#pragma once

#include <cstring>
#include <vector>

#include "cpu/rows/host_ops.h"
#include "ferry/detail/formats/row_scale.h"
#include "ferry/detail/layout/result_layout.h"
#include "ferry/detail/protocol/step.h"
#include "ferry/token_format.h"

namespace ferry::cpu {

class EncodedResults : public HostRowOps {
 public:
  // `rooms`: of this worker, [1 + results of a token][hidden] float32.
  EncodedResults(const AnyFormat& format, const ResultLayout& layout, float* rooms)
      : format_(format), layout_(layout), rooms_(rooms) {}

  void write_sum(const HostGroup& g, const SumRow* rows, int count, int hidden, std::byte* to) const {
    RowSink sink;
    sink.data = reinterpret_cast<std::byte*>(rooms_);
    sink.dtype = DType::f32;
    sum_rows(g, rows, count, hidden, sink);
    encode(hidden, to);
  }
  void write_row(const HostGroup& g, const SumRow& row, int hidden, std::byte* to) const {
    convert_row(g, row, hidden, reinterpret_cast<std::byte*>(rooms_), DType::f32);
    encode(hidden, to);
  }
  SumRow result_row(const HostGroup&, const std::byte* result, int hidden, int index, float weight) const {
    float* room = rooms_ + static_cast<std::ptrdiff_t>(index + 1) * hidden;
    float inverse = 1.0f;
    if (layout_.row_scale != 0) std::memcpy(&inverse, result + layout_.row_scale, sizeof inverse);
    format_.decode(SerialGroup{}, result, result + layout_.scales, hidden, 1.0f / inverse, room);
    return {reinterpret_cast<const std::byte*>(room), weight, DType::f32};
  }

 private:
  // The row in the first room.
  void encode(int hidden, std::byte* to) const {
    const float inverse = layout_.row_scale != 0 ? 1.0f / row_scale_of({rooms_, DType::f32}, hidden) : 1.0f;
    if (layout_.row_scale != 0) std::memcpy(to + layout_.row_scale, &inverse, sizeof inverse);
    format_.encode(SerialGroup{}, {rooms_, DType::f32}, hidden, 1.0f / inverse, to, to + layout_.scales);
  }

  AnyFormat format_;
  ResultLayout layout_;
  float* rooms_;
};
static_assert(RowOps<EncodedResults, HostGroup> && ResultOps<EncodedResults, HostGroup>);

// The ops of combines of one exchange, for each of its workers.
class ResultFormat {
 public:
  ResultFormat(const AnyFormat& format, int hidden, std::size_t results_per_token, int workers)
      : format_(format),
        layout_(result_layout(format, hidden)),
        room_((1 + results_per_token) * static_cast<std::size_t>(hidden)) {
    if (is_encoded()) rooms_.resize(room_ * static_cast<std::size_t>(workers));
  }
  // Calls body with a step that has the ops for the format of results.
  template <ReceiveStep S, class Body>
  bool with_ops_of(const S& step, int worker, const Body& body) {
    if (!is_encoded()) return body(step);
    float* rooms = rooms_.data() + room_ * static_cast<std::size_t>(worker);
    return body(with_ops(step, EncodedResults(format_, layout_, rooms)));
  }

 private:
  bool is_encoded() const { return !is_bf16_row(format_); }

  AnyFormat format_;
  ResultLayout layout_;
  std::size_t room_;          // floats of a worker
  std::vector<float> rooms_;  // [workers]
};

}  // namespace ferry::cpu
