// Errors of the calls on rows: a sentence with its values, behind the name of the call.
#pragma once

#include <fmt/core.h>

#include <utility>

#include "ferry/error.h"

namespace ferry::cuda {

template <class... Arguments>
[[noreturn]] void refuse_call(ErrorKind kind, const char* call, fmt::format_string<Arguments...> text,
                              Arguments&&... arguments) {
  throw Error(kind, fmt::format("{}: {}", call, fmt::format(text, std::forward<Arguments>(arguments)...)));
}

}  // namespace ferry::cuda
