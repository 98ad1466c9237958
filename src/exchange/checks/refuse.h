// How a check refuses a call: the text is made as fmt makes it.
#pragma once

#include <fmt/format.h>

#include <utility>

#include "exchange/checks/tensor_checks.h"

namespace ferry {

template <class... Args>
[[noreturn]] void refuse(const CheckContext& context, fmt::format_string<Args...> format, Args&&... args) {
  refuse_call(context, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace ferry
