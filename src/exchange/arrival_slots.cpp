#include "exchange/arrival_slots.h"

#include "exchange/sizes/sizes.h"

namespace ferry {

// A message is the payload of a row and then its scales.
ArrivalSlots make_arrival_slots(const std::byte* first, std::size_t slot_bytes, const Shape& shape,
                                const RowLayout& layout, const ExchangeOptions& options) {
  const auto view = [&](const std::byte* at, DType dtype, std::int64_t columns) {
    ConstTensor tensor(at, dtype, {options.message_copies, layout.sources, shape.max_tokens, columns});
    std::int64_t stride = static_cast<std::int64_t>(slot_bytes / size_of(dtype));
    for (int axis = 2; axis >= 0; stride *= tensor.shape[axis--]) tensor.strides[axis] = stride;
    return tensor;
  };
  const bool is_bf16 = dispatch_outputs(layout, layout.min_row_capacity)[0].dtype == DType::bf16;
  ArrivalSlots slots;
  slots.payload = view(first, is_bf16 ? DType::bf16 : DType::u8, is_bf16 ? layout.hidden : layout.payload_row_bytes);
  if (layout.scales_per_row != 0)
    slots.scales = view(first + layout.payload_row_bytes, layout.scale_dtype, layout.scales_per_row);
  if (layout.has_global_scales) {
    slots.global_scales = view(first + global_scale_at(options, layout.hidden), DType::f32, 1);
    slots.global_scales.rank = 3;
  }
  return slots;
}

}  // namespace ferry
