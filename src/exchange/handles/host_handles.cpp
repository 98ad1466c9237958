#include "exchange/handles/host_handles.h"

#include "exchange/checks/refuse.h"
#include "exchange/handles/short_handle.h"

namespace ferry {

const std::byte* HostHandles::given(const CheckContext& context, const ConstTensor& handle, Operation operation) {
  if (!is_short(handle)) return static_cast<const std::byte*>(handle.data);
  std::vector<std::byte>& whole = operation == Operation::dispatch ? of_dispatch_ : of_combine_;
  lengthen_handle(context, plan_, handle, whole.data());
  return whole.data();
}

std::byte* HostHandles::to_leave(const Tensor& handle) {
  left_ = is_short(handle) ? handle : Tensor{};
  return left_ ? of_dispatch_.data() : static_cast<std::byte*>(handle.data);
}

void HostHandles::leave(const CheckContext& context) {
  if (!left_) return;
  const auto bytes = static_cast<std::size_t>(left_.shape[0]);
  const std::size_t wanted = shorten_handle(plan_, of_dispatch_.data(), static_cast<std::byte*>(left_.data), bytes);
  if (wanted > bytes)
    refuse(context,
           "handle is u8 [{}], and a short handle of this dispatch takes {} bytes (RowLayout::short_handle_bytes). The "
           "dispatch is done, and has left none: give combine the handle that the dispatch was given, or none",
           bytes, wanted);
}

}  // namespace ferry
