// How many ranks a command has that is not told.
#pragma once

#include <string_view>

namespace ferry::app {

// The processes that were started, where these are ranks of the backend, else `usual`. Throws as choose_backend does.
int ranks_unasked(std::string_view backend, int usual);

}  // namespace ferry::app
