#include "tool/io/named_path.h"

#include <fmt/core.h>

#include <filesystem>
#include <system_error>

#include "ferry/error.h"

namespace ferry::app {
namespace {

namespace fs = std::filesystem;

// What leads to the same place has the same one, whether a file is there or not.
fs::path place_of(const std::string& path) {
  std::error_code error;
  fs::path place = fs::weakly_canonical(fs::absolute(path, error), error);
  return error ? fs::path(path) : place;
}

bool is_same(const std::string& a, const std::string& b) {
  std::error_code error;
  return !a.empty() && !b.empty() && (fs::equivalent(a, b, error) || place_of(a) == place_of(b));
}

void require_other(const NamedPath& output, const NamedPath& other) {
  if (is_same(output.path, other.path))
    throw Error(ErrorKind::invalid_argument,
                fmt::format("{} {} is also {}{}: give another file", output.option, output.path, other.option,
                            output.path == other.path ? "" : " " + other.path));
}

}  // namespace

void require_distinct(const std::vector<NamedPath>& outputs, const std::vector<NamedPath>& inputs) {
  for (auto output = outputs.begin(); output != outputs.end(); ++output) {
    for (const NamedPath& input : inputs) require_other(*output, input);
    for (auto earlier = outputs.begin(); earlier != output; ++earlier) require_other(*output, *earlier);
  }
}

void require_outside(const NamedPath& folder, const std::vector<NamedPath>& others) {
  const fs::path place = place_of(folder.path);
  for (const NamedPath& other : others)
    if (!other.path.empty() && place_of(other.path).parent_path().parent_path() == place)
      throw Error(ErrorKind::invalid_argument,
                  fmt::format("{} {} lies in {} {}, whose files are written anew: give another directory", other.option,
                              other.path, folder.option, folder.path));
}

}  // namespace ferry::app
