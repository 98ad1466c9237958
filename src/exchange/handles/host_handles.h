// HostHandles: memory of an exchange for two whole handles, one of a dispatch and one of a combine. It is for calls
// that are given or leave short handles in host memory. Steps know whole handles only.
#pragma once

#include <cstddef>
#include <vector>

#include "exchange/checks/validate.h"
#include "ferry/detail/protocol/contracts/round.h"
#include "ferry/exchange.h"

namespace ferry {

class HostHandles {
 public:
  // `plan`: of the exchange.
  HostHandles(const Plan& plan, std::int64_t handle_bytes)
      : plan_(plan),
        of_dispatch_(static_cast<std::size_t>(handle_bytes)),
        of_combine_(static_cast<std::size_t>(handle_bytes)) {}

  // The whole handle of a handle that a call is given: the same one, if it is whole. Else one that is made of it, and
  // stays until the next such call. `handle` is checked by check_handle_tensor. Throws as lengthen_handle.
  const std::byte* given(const CheckContext& context, const ConstTensor& handle, Operation operation);

  // Where a dispatch leaves its whole handle. It may be the memory of the handle that the dispatch is given.
  std::byte* to_leave(const Tensor& handle);
  // Behind that dispatch. Throws Error(invalid_argument) where the short handle has too few bytes.
  void leave(const CheckContext& context);

 private:
  bool is_short(const ConstTensor& handle) const {
    return handle && static_cast<std::size_t>(handle.shape[0]) < of_dispatch_.size();
  }

  Plan plan_;
  std::vector<std::byte> of_dispatch_;
  std::vector<std::byte> of_combine_;
  Tensor left_;  // short: of the newest dispatch
};

}  // namespace ferry
